/* The variables that recording needs, in the environment of each program that this one starts: where a program
 * hands over an environment of its own making they are put back in.  One that has LD_PRELOAD or
 * DLIO_TORCH_POSIX_DIRECTORY set to nothing is left alone. */

enum { KEPT_ROOM = 2 * 16384 + 2 * DIRECTORY_ROOM, MOST_VARIABLES = 4096, TEXT_ROOM = PATH_MAX + 1024 };

static const char *const kept_names[] = {"DLIO_TORCH_POSIX_DIRECTORY", "DLIO_TORCH_POSIX_INCLUDE",
                                         "DLIO_TORCH_POSIX_EXCLUDE", "DLIO_TORCH_POSIX_LIMIT"};
static const char *const rank_names[] = {"DLIO_TORCH_POSIX_RANK", "RANK",     "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK",
                                         "PMIX_RANK",             "PMI_RANK", "SLURM_PROCID"};
enum { KEPT = sizeof kept_names / sizeof *kept_names, RANKS = sizeof rank_names / sizeof *rank_names };

static struct {
    const char *library;       /* the file of this library, NULL: not known */
    const char *entries[KEPT]; /* NAME=value, as when recording began; NULL where it was not set */
    int32_t rank;              /* -1: not told */
    char text[KEPT_ROOM];
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

/* The rank that an environment tells, or -1. */
static int32_t rank_in(char *const variables[])
{
    for (int i = 0; i < RANKS; i++) {
        const char *text = value_of(variables, rank_names[i]);
        int64_t rank = 0;
        if (text == NULL || *text == 0)
            continue;
        for (; *text >= '0' && *text <= '9' && rank <= INT32_MAX; text++)
            rank = rank * 10 + (*text - '0');
        if (*text == 0 && rank <= INT32_MAX)
            return (int32_t)rank;
    }
    return -1;
}

static void keep_variables(void)
{
    Dl_info about;
    char *at = kept.text;
    for (int i = 0; i < KEPT; i++) {
        const char *value = getenv(kept_names[i]);
        if (value == NULL || strlen(kept_names[i]) + strlen(value) + 2 > (size_t)(kept.text + KEPT_ROOM - at))
            continue;
        kept.entries[i] = at;
        at = put_text(put_text(put_text(at, kept_names[i]), "="), value);
        *at++ = 0;
    }
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
    return count + KEPT + 3;
}

/* An environment with what is missing in it, made of the caller's room; itself where nothing is missing or it is
 * too large.  The child of vfork calls this, too: nothing is allocated, nothing but the room is written to. */
static char *const *completed(char *const variables[], char **room, char *text)
{
    const char *preload = value_of(variables, "LD_PRELOAD"), *directory = value_of(variables, kept_names[0]);
    size_t count = room_for(variables) - KEPT - 3, put = 0;
    if (!settings.on || kept.library == NULL || (preload != NULL && *preload == 0) ||
        (directory != NULL && *directory == 0) || count == MOST_VARIABLES)
        return variables;
    int is_loaded = preload != NULL && strstr(preload, "posix_trace") != NULL;
    if (is_loaded && directory != NULL)
        return variables;
    if (strlen(kept.library) + (preload != NULL ? strlen(preload) : 0) + 64 > TEXT_ROOM)
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
    for (int i = 0; directory == NULL && i < KEPT; i++)
        if (kept.entries[i] != NULL && value_of(variables, kept_names[i]) == NULL)
            room[put++] = (char *)kept.entries[i];
    int32_t rank = rank_in(environ);
    rank = rank < 0 ? kept.rank : rank;
    if (directory == NULL && rank >= 0 && rank_in(variables) < 0) {
        room[put++] = text;
        *put_number(put_text(text, "DLIO_TORCH_POSIX_RANK="), rank) = 0;
    }
    room[put] = NULL;
    return room;
}
