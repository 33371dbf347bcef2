/* Entry of the import hook, which records what a Python program asks torch for.
 *
 * A process that opens torch's first module is about to import torch.  One pending call of the interpreter then runs
 * the file that the line `hook=` of the variable names, in the main thread, before torch's first line.  Nothing else of
 * Python is called here, since an open may come from any thread, with or without the interpreter's lock.
 * dlio_torch.iotrace.recorder.torch_hook describes the hook. */

enum { CODE_ROOM = 6 * (PATH_MAX + DIRECTORY_ROOM) + 1024 };

static struct {
    char path[PATH_MAX];  /* of the hook's file; empty: no hook */
    _Atomic int has_entered;
} hook;

static void read_hook(const char *value)
{
    const char *path = line_in(value, "hook=");
    size_t size = path == NULL ? 0 : strcspn(path, "\n");
    if (size > 0 && size < sizeof hook.path)
        memcpy(hook.path, path, size);
}

static int ends_with(const char *text, const char *end, const char *tail)
{
    size_t size = strlen(tail);
    return (size_t)(end - text) >= size && memcmp(end - size, tail, size) == 0;
}

/* Whether this is `torch/__init__.py` or its compiled form, in `__pycache__` or in a folder of its own. */
static int is_torch(const char *path)
{
    static const char cache[] = "/__pycache__";
    const char *name = strrchr(path, '/');
    if (name == NULL || strncmp(name, "/__init__.", 10) != 0)
        return 0;
    const char *end = name + strlen(name);
    if (!ends_with(name, end, ".py") && !ends_with(name, end, ".pyc"))
        return 0;
    if (ends_with(path, name, cache))
        name -= sizeof cache - 1;
    return ends_with(path, name, "/torch");
}

/* A note in the file of this process that dlio_torch.iotrace.events.torch_calls reads. */
static void note_no_hook(const char *text)
{
    char path[FILE_ROOM], line[512];
    char *at = put_number(put_text(put_text(path, settings.directory), "/rank"), rank_of_process());
    *put_text(put_number(put_text(at, "-"), (int64_t)raw(SYS_getpid, 0, 0, 0, 0)), ".torch") = 0;
    long fd = raw_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0666);
    if (raw_failed(fd))
        return;
    at = put_json(put_text(line, "{\"kind\":\"note\",\"text\":"), text, strlen(text));
    at = put_text(at, "}\n");
    raw(SYS_write, fd, line, at - line, 0);
    raw(SYS_close, fd, 0, 0, 0);
}

/* The interpreter calls this in its main thread, with its lock held.  The code leaves no name in the program's module. */
static int run_hook(void *unused)
{
    static char code[CODE_ROOM];
    int (*run)(const char *) = (int (*)(const char *))look_up(RTLD_DEFAULT, "PyRun_SimpleString");
    (void)unused;
    char *at = put_text(code, "try:\n __import__('builtins').exec('with open(__file__, \"rb\") as file:\\n text = file.read()\\n"
                              "exec(compile(text, __file__, \"exec\"))', {'__name__': 'dlio_torch_hook', '__file__': ");
    at = put_json(at, hook.path, strlen(hook.path));
    at = put_json(put_text(at, ", 'events': "), settings.directory, strlen(settings.directory));
    at = put_number(put_text(at, ", 'rank': "), rank_of_process());
    at = put_number(put_text(at, ", 'limit_bytes': "), settings.limit);
    *put_text(at, "})\nexcept Exception: pass\n") = 0;
    run(code);
    return 0;
}

/* Whether a version of Python, such as "3.11.7 (main, ...)", is at least 3.10. */
static int is_new_enough(const char *version)
{
    return strncmp(version, "3.", 2) == 0 && version[2] >= '1' && version[2] <= '9' && version[3] >= '0' && version[3] <= '9';
}

static void queue_hook(void)
{
    int (*is_ready)(void) = (int (*)(void))look_up(RTLD_DEFAULT, "Py_IsInitialized");
    const char *(*version)(void) = (const char *(*)(void))look_up(RTLD_DEFAULT, "Py_GetVersion");
    int (*add)(int (*)(void *), void *) = (int (*)(int (*)(void *), void *))look_up(RTLD_DEFAULT, "Py_AddPendingCall");
    if (is_ready == NULL || version == NULL || add == NULL || look_up(RTLD_DEFAULT, "PyRun_SimpleString") == NULL) {
        const char *program = program_invocation_short_name;
        if (program != NULL && strncmp(program, "python", 6) == 0)
            note_no_hook("what the program asked torch for is not recorded: its Python does not export its functions");
    } else if (!is_new_enough(version())) {
        note_no_hook("what the program asked torch for is not recorded: its Python is older than 3.10");
    } else if (is_ready() && add(run_hook, NULL) != 0) {
        note_no_hook("what the program asked torch for is not recorded: its Python takes no more pending calls");
    }
}

/* This path was opened. */
static inline void watch_import(const char *path)
{
    if (unlikely(hook.path[0] && !atomic_load_explicit(&hook.has_entered, memory_order_relaxed) && is_torch(path)) &&
        atomic_exchange(&hook.has_entered, 1) == 0)
        queue_hook();
}
