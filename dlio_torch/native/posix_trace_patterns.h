/* Which paths are wanted: patterns as dlio_torch.iotrace.recorder.preload describes them. */

static struct {
    char text[2][16384]; /* what to include, what to exclude: patterns, each ended by a zero, then an empty one */
} patterns;

/* Shell pattern over bytes; * and ? match slashes, too. */
static int matches(const char *pattern, const char *text)
{
    const char *star = NULL, *from = NULL;
    for (;;) {
        if (*pattern == '*') {
            star = ++pattern;
            from = text;
            continue;
        }
        int same = 0;
        const char *next = pattern + 1;
        if (*text && *pattern == '[' && strchr(pattern + 2, ']') != NULL) {
            const char *p = pattern + 1;
            int invert = *p == '!' || *p == '^';
            p += invert;
            const char *first = p;
            for (; *p && (*p != ']' || p == first); p++) {
                if (p[1] == '-' && p[2] && p[2] != ']') {
                    same |= (unsigned char)*text >= (unsigned char)*p && (unsigned char)*text <= (unsigned char)p[2];
                    p += 2;
                } else {
                    same |= *p == *text;
                }
            }
            same ^= invert;
            next = *p ? p + 1 : p;
        } else {
            same = *text && (*pattern == '?' || *pattern == *text);
        }
        if (same) {
            pattern = next;
            text++;
        } else if (*text == 0 && *pattern == 0) {
            return 1;
        } else if (star != NULL && *from) {
            pattern = star;
            text = ++from;
        } else {
            return 0;
        }
    }
}

static int any_matches(const char *list, const char *text)
{
    for (; *list; list += strlen(list) + 1) {
        size_t size = strlen(list);
        if (strpbrk(list, "*?[") != NULL) {
            if (matches(list, text))
                return 1;
        } else if (strncmp(text, list, size) == 0 && (text[size] == 0 || text[size] == '/' || list[size - 1] == '/')) {
            return 1;
        }
    }
    return 0;
}

static int is_left_out(const char *text)
{
    size_t size = strlen(settings.directory);
    return *text != '/' || (strncmp(text, settings.directory, size) == 0 && (text[size] == '/' || text[size] == 0)) ||
           any_matches(patterns.text[1], text);
}

static int is_included(const char *text)
{
    return patterns.text[0][0] == 0 || any_matches(patterns.text[0], text);
}
