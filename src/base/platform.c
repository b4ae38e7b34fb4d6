/* SPDX-License-Identifier: Apache-2.0 */
#include "base/platform.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

struct sdc_fpenv sdc__fpenv_read(void) {
    struct sdc_fpenv env = {0};
#if defined(__x86_64__)
    unsigned csr = _mm_getcsr();
    env.known = true;
    env.ftz = (csr & 0x8000u) != 0;
    env.daz = (csr & 0x0040u) != 0;
    env.rounding = (int)(csr >> 13 & 3u);
#endif
    return env;
}

void sdc__fpenv_text(const struct sdc_fpenv *env, char *text, size_t size) {
    static const char *const modes[] = {"nearest", "down", "up", "zero"};
    if (env->known)
        snprintf(text, size, "ftz=%d daz=%d rounding=%s", env->ftz, env->daz, modes[env->rounding]);
    else
        snprintf(text, size, "unknown");
}

void sdc__cpu_model(char *text, size_t size) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    char vendor[13] = {0}, brand[49] = {0};
    if (__get_cpuid(0, &a, &b, &c, &d)) {
        memcpy(vendor, &b, 4);
        memcpy(vendor + 4, &d, 4);
        memcpy(vendor + 8, &c, 4);
    }
    for (unsigned i = 0; i < 3; i++) {
        unsigned regs[4];
        if (!__get_cpuid(0x80000002u + i, &regs[0], &regs[1], &regs[2], &regs[3]))
            break;
        memcpy(brand + 16 * i, regs, 16);
    }
    unsigned family = 0, model = 0, stepping = 0;
    if (__get_cpuid(1, &a, &b, &c, &d)) {
        family = a >> 8 & 15u;
        model = a >> 4 & 15u;
        if (family == 6 || family == 15)
            model |= (a >> 16 & 15u) << 4;
        if (family == 15)
            family += a >> 20 & 255u;
        stepping = a & 15u;
    }
    size_t start = strspn(brand, " ");
    snprintf(text, size, "%s family %u model %u stepping %u (%s)", vendor, family, model, stepping,
             brand + start);
#else
    snprintf(text, size, "unknown");
#endif
}

void sdc__cpu_features(char *text, size_t size) {
    text[0] = '\0';
#if defined(__x86_64__)
    __builtin_cpu_init();
    const struct {
        const char *name;
        int have;
    } features[] = {
        {"sse4.2", __builtin_cpu_supports("sse4.2") != 0},
        {"avx", __builtin_cpu_supports("avx") != 0},
        {"avx2", __builtin_cpu_supports("avx2") != 0},
        {"fma", __builtin_cpu_supports("fma") != 0},
        {"avx512f", __builtin_cpu_supports("avx512f") != 0},
        {"avx512bw", __builtin_cpu_supports("avx512bw") != 0},
        {"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0},
    };
    size_t used = 0;
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++)
        if (features[i].have && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "",
                                     features[i].name);
    unsigned a, b, c, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1u) && used < size)
        snprintf(text + used, size - used, " amx");
#else
    snprintf(text, size, "unknown");
#endif
}
