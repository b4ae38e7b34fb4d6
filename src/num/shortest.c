/* SPDX-License-Identifier: Apache-2.0
 *
 * A value is m times 2^e with m of at most 24 bits. It is scaled by a power of ten to an integer D
 * of 18 or 19 digits, with an error of a few units, and D is cut to fewer digits while the cut
 * value stays between the midpoints to the value's neighbours. The widest such interval of a type
 * here is 10^9 units and more, so that the error matters only within TOLERANCE of a midpoint or a
 * tie; there the caller takes another way.
 */
#include "num/shortest.h"

#include <string.h>

#define TOLERANCE 64
#define E17       UINT64_C(100000000000000000)
#define E18       UINT64_C(1000000000000000000)
#define MAX_FIVE  27 /* 5^27 is the largest that fits 64 bits */
#define JSON_G    15 /* digits before the point from which an exponent is written */

__extension__ typedef unsigned __int128 u128;

static const uint64_t tens[] = {UINT64_C(1),
                                UINT64_C(10),
                                UINT64_C(100),
                                UINT64_C(1000),
                                UINT64_C(10000),
                                UINT64_C(100000),
                                UINT64_C(1000000),
                                UINT64_C(10000000),
                                UINT64_C(100000000),
                                UINT64_C(1000000000),
                                UINT64_C(10000000000),
                                UINT64_C(100000000000),
                                UINT64_C(1000000000000),
                                UINT64_C(10000000000000),
                                UINT64_C(100000000000000),
                                UINT64_C(1000000000000000),
                                UINT64_C(10000000000000000),
                                E17,
                                E18};

static uint64_t power_of_five(unsigned n) {
    uint64_t p = 1, square = 5;
    for (; n; n >>= 1) {
        if (n & 1)
            p *= square;
        square *= square;
    }
    return p;
}

/* x times 2^shift, cut; *exact becomes false where bits are lost. */
static u128 shifted(u128 x, int shift, bool *exact) {
    if (shift >= 0)
        return x << shift;
    if (shift <= -128) {
        *exact = false;
        return 0;
    }
    if (x & (((u128)1 << -shift) - 1))
        *exact = false;
    return x >> -shift;
}

/* m times 2^e times 10^s, cut to an integer below 2^63. */
static uint64_t scaled(uint64_t m, int e, int s, bool *exact) {
    u128 x = m;
    int two = e + s;
    if (s < 0) {
        const int room = 100; /* m has 24 bits, 5^21 has 49 */
        uint64_t five = power_of_five((unsigned)-s);
        x <<= room;
        *exact = *exact && x % five == 0;
        return (uint64_t)shifted(x / five, two - room, exact);
    }
    for (unsigned left = (unsigned)s; left > 0;) {
        unsigned now = left < MAX_FIVE ? left : MAX_FIVE;
        while (x >> 64) { /* back to a factor of 64 bits */
            int over = 64 - __builtin_clzll((uint64_t)(x >> 64));
            x = shifted(x, -over, exact);
            two += over;
        }
        x *= power_of_five(now);
        left -= now;
    }
    return (uint64_t)shifted(x, two, exact);
}

/* A value of the types known here, on its way to digits. */
struct scaling {
    uint64_t d;   /* of 18 or 19 digits */
    unsigned n;   /* how many */
    int exponent; /* of the first digit */
    uint64_t tolerance;
    uint64_t up, down; /* half the distance to the next values */
};

enum fit { YES, NO, UNSURE };

/* d cut to p digits, rounded; in *cut as an integer of p digits (or 10^p). */
static enum fit try_digits(const struct scaling *s, unsigned p, uint64_t *cut) {
    uint64_t unit = tens[s->n - p], whole = s->d / unit, rest = s->d % unit, half = unit / 2;
    uint64_t from_half = rest > half ? rest - half : half - rest;
    if (from_half <= s->tolerance)
        return UNSURE;
    bool up = rest > half;
    uint64_t off = up ? unit - rest : rest, limit = up ? s->up : s->down;
    *cut = whole + up;
    uint64_t from_limit = off > limit ? off - limit : limit - off;
    if (from_limit <= s->tolerance + 2) /* the limits are rounded */
        return UNSURE;
    return off < limit ? YES : NO;
}

static bool scale(uint64_t m, int e, bool narrow_below, struct scaling *s) {
    bool exact = true;
    int top = 64 - __builtin_clzll(m) + e;             /* the value is from 2^(top-1) to 2^top */
    int k = (top - 1) * 1233 / 4096 - ((top - 1) < 0); /* floor of log10, at most one too small */
    s->d = scaled(m, e, 17 - k, &exact);
    s->tolerance = exact ? 0 : TOLERANCE;
    if (s->d < E17 || (!exact && s->d + TOLERANCE > E18 && s->d < E18 + TOLERANCE))
        return false;
    s->n = s->d >= E18 ? 19 : 18;
    s->exponent = k + (s->n == 19);
    s->up = s->d / m / 2;
    s->down = narrow_below ? s->up / 2 : s->up;
    return true;
}

bool sdc__num_decimal(enum sdc_dtype dtype, uint64_t raw, struct sdc__decimal *d) {
    if (dtype != SDC_DTYPE_F32 && dtype != SDC_DTYPE_F16 && dtype != SDC_DTYPE_BF16)
        return false;
    const unsigned bits = sdc_dtype_mantissa_bits(dtype), e = sdc_dtype_exponent_bits(dtype);
    const uint64_t hidden = UINT64_C(1) << bits, all = (UINT64_C(1) << e) - 1;
    const uint64_t exponent = raw >> bits & all, fraction = raw & (hidden - 1);
    const int bias = (1 << (e - 1)) - 1 + (int)bits;
    struct scaling s;
    uint64_t m = exponent ? fraction | hidden : fraction, cut = 0;
    if (m == 0 || exponent == all || (exponent == all - 1 && fraction == hidden - 1))
        return false;
    if (!scale(m, (exponent ? (int)exponent : 1) - bias, fraction == 0 && exponent > 1, &s))
        return false;
    /* Any decimal of as many digits as always survive the type is found by rounding to that many;
     * this does not hold for subnormals. */
    unsigned p = exponent ? (bits * 1233) / 4096 : 1;
    enum fit fit = NO;
    for (; p <= 9 && fit == NO; p++)
        fit = try_digits(&s, p, &cut);
    if (fit != YES)
        return false;
    p--;
    *d = (struct sdc__decimal){
        .digits = cut, .n = p, .exponent = s.exponent, .negative = raw >> (bits + e) & 1};
    if (cut == tens[p]) { /* rounded up to the next power of ten */
        d->digits /= 10;
        d->exponent++;
    }
    while (d->n > 1 && d->digits % 10 == 0) {
        d->digits /= 10;
        d->n--;
    }
    return true;
}

/* ---- as text ---- */

size_t sdc__u64_text(uint64_t value, char *text) {
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    char back[20];
    size_t at = sizeof back;
    while (value >= 100) {
        at -= 2;
        memcpy(back + at, pairs + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10) {
        at -= 2;
        memcpy(back + at, pairs + value * 2, 2);
    } else {
        back[--at] = (char)('0' + value);
    }
    memcpy(text, back + at, sizeof back - at);
    return sizeof back - at;
}

static size_t put_exponent(const struct sdc__decimal *d, const char *digits, char *text) {
    size_t n = 0;
    text[n++] = digits[0];
    if (d->n > 1) {
        text[n++] = '.';
        memcpy(text + n, digits + 1, d->n - 1);
        n += d->n - 1;
    }
    unsigned size = (unsigned)(d->exponent < 0 ? -d->exponent : d->exponent);
    text[n++] = 'e';
    text[n++] = d->exponent < 0 ? '-' : '+';
    text[n++] = (char)('0' + size / 10);
    text[n++] = (char)('0' + size % 10);
    return n;
}

/* Without an exponent; point: a ".0" where there is nothing behind the point. */
static size_t put_plain(const struct sdc__decimal *d, const char *digits, bool point, char *text) {
    size_t n = 0;
    if (d->exponent < 0) {
        text[n++] = '0';
        text[n++] = '.';
        for (int zero = -1; zero > d->exponent; zero--)
            text[n++] = '0';
        memcpy(text + n, digits, d->n);
        return n + d->n;
    }
    for (int i = 0; i <= d->exponent || i < (int)d->n; i++) {
        if (i == d->exponent + 1)
            text[n++] = '.';
        text[n++] = i < (int)d->n ? digits[i] : '0';
    }
    if (point && d->exponent + 1 >= (int)d->n) {
        text[n++] = '.';
        text[n++] = '0';
    }
    return n;
}

/* Fixed notation for exponents from -4 to below `limit`, as %g does. */
static size_t put(const struct sdc__decimal *d, int limit, bool point, char *text) {
    char digits[20];
    size_t n = 0;
    (void)sdc__u64_text(d->digits, digits);
    if (d->negative)
        text[n++] = '-';
    return n + (d->exponent < -4 || d->exponent >= limit ? put_exponent(d, digits, text + n)
                                                         : put_plain(d, digits, point, text + n));
}

size_t sdc__decimal_text(const struct sdc__decimal *d, char *text) {
    size_t n = put(d, (int)d->n, false, text);
    text[n] = '\0';
    return n;
}

size_t sdc__decimal_json(const struct sdc__decimal *d, char *text) {
    return put(d, JSON_G, d->exponent + 1 != (int)d->n, text);
}
