/* Text without the C library: numbers, and JSON strings as Python writes them. */

static char *put_text(char *at, const char *text)
{
    size_t length = strlen(text);
    memcpy(at, text, length);
    return at + length;
}

static char *put_number(char *at, int64_t value)
{
    char digits[24];
    int count = 0;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do
        digits[count++] = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0)
        *at++ = '-';
    while (count)
        *at++ = digits[--count];
    return at;
}

static char *put_unit(char *at, unsigned unit)
{
    static const char hex[] = "0123456789abcdef";
    *at++ = '\\';
    *at++ = 'u';
    for (int shift = 12; shift >= 0; shift -= 4)
        *at++ = hex[unit >> shift & 15];
    return at;
}

/* Length of the UTF-8 sequence at `s` and its code point, or 0 where Python's decoder would refuse it. */
static int utf8(const unsigned char *s, const unsigned char *end, unsigned *point)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    int length = *s >= 0xf0 && *s < 0xf5 ? 4 : *s >= 0xe0 && *s < 0xf0 ? 3 : *s >= 0xc2 && *s < 0xe0 ? 2 : 0;
    if (length == 0 || end - s < length)
        return 0;
    unsigned value = *s & (0xffu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (s[i] & 0x3f);
    }
    if (value < least[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 0;
    *point = value;
    return length;
}

/* The JSON string that Python's json.dumps(os.fsdecode(text)) gives: at most 6 bytes for each byte, and 2. */
static char *put_json(char *at, const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text, *end = s + size;
    *at++ = '"';
    while (s < end) {
        unsigned point = *s;
        int length = 1;
        if (point >= 0x80 && (length = utf8(s, end, &point)) == 0) {
            at = put_unit(at, 0xdc00 + *s++); /* surrogateescape */
            continue;
        }
        s += length;
        if (point == '"' || point == '\\') {
            *at++ = '\\';
            *at++ = (char)point;
        } else if (point >= 0x10000) {
            at = put_unit(at, 0xd800 + ((point - 0x10000) >> 10));
            at = put_unit(at, 0xdc00 + ((point - 0x10000) & 0x3ff));
        } else if (point < 0x20 || point >= 0x7f) {
            at = put_unit(at, point);
        } else {
            *at++ = (char)point;
        }
    }
    *at++ = '"';
    return at;
}
