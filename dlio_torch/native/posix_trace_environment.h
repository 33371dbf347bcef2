/* Additions of a recording to the environment of a program: this library in LD_PRELOAD, and one variable.  If a
 * program passes an environment of its own, both are added to it, unless it has set one of them to nothing.
 * dlio_torch.iotrace.recorder.preload describes the variable. */

#define VARIABLE "DLIO_TORCH_POSIX"

enum { KEPT_ROOM = 2 * 16384 + 2 * DIRECTORY_ROOM, MOST_VARIABLES = 4096, TEXT_ROOM = PATH_MAX + 1024, ADDED = 2 };

static const char *const rank_names[] = {"RANK",     "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK",
                                         "PMIX_RANK", "PMI_RANK",    "SLURM_PROCID"};
enum { RANKS = sizeof rank_names / sizeof *rank_names };

static struct {
    const char *library;  /* the file of this library, NULL: not known */
    int32_t rank;         /* -1: not told */
    char text[KEPT_ROOM]; /* the variable's value as when recording began, without its rank */
} kept;

/* The value in an entry NAME=value; NULL where it is another variable's. */
static const char *value_in(const char *entry, const char *name)
{
    size_t size = strlen(name);
    return strncmp(entry, name, size) == 0 && entry[size] == '=' ? entry + size + 1 : NULL;
}

static const char *value_of(char *const variables[], const char *name)
{
    for (size_t i = 0; variables != NULL && variables[i] != NULL; i++) {
        const char *value = value_in(variables[i], name);
        if (value != NULL)
            return value;
    }
    return NULL;
}

/* The rank that a text of digits tells, up to the line's end; -1 where it tells none. */
static int32_t rank_of(const char *text)
{
    int64_t rank = 0;
    if (*text < '0' || *text > '9')
        return -1;
    for (; *text >= '0' && *text <= '9' && rank <= INT32_MAX; text++)
        rank = rank * 10 + (*text - '0');
    return (*text == 0 || *text == '\n') && rank <= INT32_MAX ? (int32_t)rank : -1;
}

/* The text after `name` at the beginning of a line of the variable's value; the directory comes last. */
static const char *line_in(const char *value, const char *name)
{
    for (const char *line = value; line != NULL && *line && *line != '/'; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, strlen(name)) == 0)
            return line + strlen(name);
        if (*line == '/')
            break;
    }
    return NULL;
}

/* The rank that an environment tells, or -1. */
static int32_t rank_in(char *const variables[])
{
    const char *told = value_of(variables, VARIABLE), *line = told == NULL ? NULL : line_in(told, "rank=");
    if (line != NULL)
        return rank_of(line);
    for (int i = 0; i < RANKS; i++) {
        const char *text = value_of(variables, rank_names[i]);
        int32_t rank = text == NULL ? -1 : rank_of(text);
        if (rank >= 0)
            return rank;
    }
    return -1;
}

static void keep_variables(const char *value)
{
    Dl_info about;
    char *at = kept.text;
    for (const char *line = value, *next; *line; line = next) {
        next = *line == '/' ? NULL : strchr(line, '\n');
        next = next == NULL ? line + strlen(line) : next + 1;
        if (strncmp(line, "rank=", 5) != 0) {
            memcpy(at, line, (size_t)(next - line));
            at += next - line;
        }
    }
    *at = 0;
    kept.rank = rank_in(environ);
    if (dladdr(&kept, &about) != 0 && about.dli_fname != NULL && *about.dli_fname == '/')
        kept.library = about.dli_fname;
}

/* Entries for which `completed` needs room. */
static size_t room_for(char *const variables[])
{
    size_t count = 0;
    while (variables != NULL && variables[count] != NULL && count < MOST_VARIABLES)
        count++;
    return count + ADDED + 1;
}

/* Bytes of text for which it needs room. */
static size_t text_room(void)
{
    return TEXT_ROOM + (settings.on ? strlen(kept.text) : 0);
}

/* An environment with what is missing in it, made of the caller's room; itself where nothing is missing or it is
 * too large.  The child of vfork calls this, too: nothing is allocated, nothing but the room is written to. */
static char *const *completed(char *const variables[], char **room, char *text)
{
    const char *preload = value_of(variables, "LD_PRELOAD"), *told = value_of(variables, VARIABLE);
    size_t count = room_for(variables) - ADDED - 1, put = 0;
    if (!settings.on || kept.library == NULL || (preload != NULL && *preload == 0) || (told != NULL && *told == 0) ||
        count == MOST_VARIABLES)
        return variables;
    int is_loaded = preload != NULL && strstr(preload, "posix_trace") != NULL;
    if (is_loaded && told != NULL)
        return variables;
    if (strlen(kept.library) + (preload != NULL ? strlen(preload) : 0) + 128 > TEXT_ROOM)
        return variables;
    for (size_t i = 0; i < count; i++)
        if (is_loaded || value_in(variables[i], "LD_PRELOAD") == NULL)
            room[put++] = variables[i];
    if (!is_loaded) {
        room[put++] = text;
        text = put_text(put_text(text, "LD_PRELOAD="), kept.library);
        if (preload != NULL)
            text = put_text(put_text(text, ":"), preload);
        *text++ = 0;
    }
    if (told == NULL) {
        int32_t rank = rank_in(environ);
        rank = rank < 0 ? kept.rank : rank;
        room[put++] = text;
        text = put_text(text, VARIABLE "=");
        if (rank >= 0 && rank_in(variables) < 0)
            text = put_text(put_number(put_text(text, "rank="), rank), "\n");
        *put_text(text, kept.text) = 0;
    }
    room[put] = NULL;
    return room;
}
