/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch's and NumPy's words for types, and which globals a state of a training needs.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "ckpt/fmt/torch.h"

static bool starts(const char *s, const char *word) {
    return strncmp(s, word, strlen(word)) == 0;
}

static bool ends(const char *s, const char *word) {
    size_t n = strlen(s), len = strlen(word);
    return n >= len && strcmp(s + n - len, word) == 0;
}

/* ---- types ---- */

#define KNOWN(dtype) SDC_DTYPE_##dtype, true

/* The word after "torch.", and the storage class of the same elements. */
static const struct {
    struct sdc_torch_type type;
    const char *storage;
} types[] = {
    {{"float64", KNOWN(F64), 64, 1}, "DoubleStorage"},
    {{"float32", KNOWN(F32), 32, 1}, "FloatStorage"},
    {{"float16", KNOWN(F16), 16, 1}, "HalfStorage"},
    {{"bfloat16", KNOWN(BF16), 16, 1}, "BFloat16Storage"},
    {{"int64", KNOWN(I64), 64, 1}, "LongStorage"},
    {{"int32", KNOWN(I32), 32, 1}, "IntStorage"},
    {{"int16", KNOWN(I16), 16, 1}, "ShortStorage"},
    {{"int8", KNOWN(I8), 8, 1}, "CharStorage"},
    {{"uint8", KNOWN(U8), 8, 1}, "ByteStorage"},
    {{"bool", KNOWN(BOOL), 8, 1}, "BoolStorage"},
    {{"complex128", KNOWN(F64), 128, 2}, "ComplexDoubleStorage"},
    {{"complex64", KNOWN(F32), 64, 2}, "ComplexFloatStorage"},
    {{"complex32", KNOWN(F16), 32, 2}, "ComplexHalfStorage"},
    {{"qint8", KNOWN(I8), 8, 1}, "QInt8Storage"},
    {{"quint8", KNOWN(U8), 8, 1}, "QUInt8Storage"},
    {{"qint32", KNOWN(I32), 32, 1}, "QInt32Storage"},
    {{"quint4x2", KNOWN(U4), 4, 1}, "QUInt4x2Storage"},
    {{"quint2x4", KNOWN(U2), 2, 1}, "QUInt2x4Storage"},
    {{"uint16", KNOWN(U16), 16, 1}, NULL},
    {{"uint32", KNOWN(U32), 32, 1}, NULL},
    {{"uint64", KNOWN(U64), 64, 1}, NULL},
    {{"float8_e5m2", KNOWN(F8_E5M2), 8, 1}, NULL},
    {{"float8_e4m3fn", KNOWN(F8_E4M3), 8, 1}, NULL},
    {{"float8_e5m2fnuz", KNOWN(F8_E5M2FNUZ), 8, 1}, NULL},
    {{"float8_e4m3fnuz", KNOWN(F8_E4M3FNUZ), 8, 1}, NULL},
    {{"float8_e8m0fnu", KNOWN(F8_E8M0), 8, 1}, NULL},
    {{"float4_e2m1fn_x2", KNOWN(F4), 8, 2}, NULL},
    {{"bits8", KNOWN(U8), 8, 1}, NULL},
    {{"bits16", KNOWN(U16), 16, 1}, NULL},
    {{"bits4x2", KNOWN(U8), 8, 1}, NULL},
    {{"bits2x4", KNOWN(U8), 8, 1}, NULL},
    {{"bits1x8", KNOWN(U8), 8, 1}, NULL},
};

bool sdc__torch_storage_class(const char *global, struct sdc_torch_type *type) {
    if (!global || !starts(global, "torch."))
        return false;
    const char *name = strrchr(global, '.') + 1;
    if (strcmp(name, "UntypedStorage") == 0 || strcmp(name, "_UntypedStorage") == 0) {
        *type = (struct sdc_torch_type){"uint8", KNOWN(U8), 8, 1};
        return true;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].storage && strcmp(types[i].storage, name) == 0) {
            *type = types[i].type;
            return true;
        }
    return false;
}

bool sdc__torch_dtype(const char *global, struct sdc_torch_type *type) {
    if (!global || !starts(global, "torch."))
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].type.text, global + 6) == 0) {
            *type = types[i].type;
            return true;
        }
    return false;
}

bool sdc__torch_numpy_type(const char *descr, char order, struct sdc_torch_type *type,
                           bool *big_endian) {
    static const struct {
        const char *code, *word;
    } codes[] = {{"f8", "float64"},   {"f4", "float32"},     {"f2", "float16"}, {"i8", "int64"},
                 {"i4", "int32"},     {"i2", "int16"},       {"i1", "int8"},    {"u8", "uint64"},
                 {"u4", "uint32"},    {"u2", "uint16"},      {"u1", "uint8"},   {"b1", "bool"},
                 {"c8", "complex64"}, {"c16", "complex128"}, {"?", "bool"}};
    if (*descr == '<' || *descr == '>' || *descr == '|' || *descr == '=')
        order = *descr++;
    *big_endian = order == '>';
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strcmp(codes[i].code, descr) == 0) {
            char global[32];
            (void)snprintf(global, sizeof global, "torch.%s", codes[i].word);
            return sdc__torch_dtype(global, type);
        }
    return false;
}

/* ---- globals ---- */

/* What PyTorch's loader accepts by default (torch/_weights_only_unpickler.py), what its own
 * modules, optimizers and distributed states are made of, and plain values. A word that ends in a
 * dot is a package. */
static const char *const harmless[] = {
    "collections.OrderedDict",
    "collections.defaultdict",
    "collections.Counter",
    "collections.deque",
    "_codecs.encode",
    "copyreg._reconstructor",
    "copy_reg._reconstructor",
    "argparse.Namespace",
    "types.SimpleNamespace",
    "datetime.",
    "pathlib.",
    "decimal.Decimal",
    "fractions.Fraction",
    "uuid.UUID",
    "numpy.dtype",
    "numpy.ndarray",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "numpy.core.numeric._frombuffer",
    "numpy._core.numeric._frombuffer",
    "numpy.random.",
    "numpy.dtypes.",
    "torch.Size",
    "torch.device",
    "torch.Tensor",
    "torch.dtype",
    "torch.layout",
    "torch.strided",
    "torch.sparse_coo",
    "torch.sparse_csr",
    "torch.sparse_csc",
    "torch.sparse_bsr",
    "torch.sparse_bsc",
    "torch.per_tensor_affine",
    "torch.per_channel_affine",
    "torch.per_channel_affine_float_qparams",
    "torch.contiguous_format",
    "torch.preserve_format",
    "torch.channels_last",
    "torch.Generator",
    "torch.serialization._get_layout",
    "torch._tensor._rebuild_from_type_v2",
    "torch._tensor._rebuild_from_type",
    "torch.nn.",
    "torch.optim.",
    "torch.jit._pickle.",
    "torch.distributed.tensor.",
    "torch.distributed._tensor.",
    "torch.distributed._shard.",
    "torch.distributed.device_mesh.",
    "torch.distributed.checkpoint.",
    "torch.distributed.fsdp.",
    "torch.cuda.amp.",
    "torch.amp.",
    "torch.ao.",
    "__torch__.",
};

static const char *const harmless_builtins[] = {
    "set",  "frozenset", "bytearray", "complex", "list",  "dict",   "tuple", "int",
    "bool", "float",     "str",       "bytes",   "slice", "object", "range"};

static bool is_harmless(const char *global) {
    struct sdc_torch_type type;
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (ends(harmless[i], ".") ? starts(global, harmless[i]) : strcmp(global, harmless[i]) == 0)
            return true;
    const char *name = starts(global, "builtins.")      ? global + 9
                       : starts(global, "__builtin__.") ? global + 12
                                                        : NULL;
    for (size_t i = 0; name && i < sizeof harmless_builtins / sizeof *harmless_builtins; i++)
        if (strcmp(name, harmless_builtins[i]) == 0)
            return true;
    return sdc__torch_storage_class(global, &type) || sdc__torch_dtype(global, &type) ||
           (starts(global, "torch.") && ends(global, "Storage")) ||
           starts(global, "torch._utils._rebuild_");
}

enum sdc_status sdc__torch_note_globals(struct sdc_ckpt *ckpt, const struct sdc_pk *pk,
                                        const char *what, struct sdc_error *err) {
    enum { SHOWN = 8 };
    struct sdc_buf names = SDC_BUF_INIT;
    size_t n = 0;
    for (size_t i = 0; i < sdc__pk_globals(pk); i++) {
        const char *global = sdc__pk_global_at(pk, i);
        if (is_harmless(global))
            continue;
        bool valid = sdc__utf8_valid(global, strlen(global));
        if (n < SHOWN)
            sdc__buf_printf(&names, "%s%.80s", n ? ", " : "", valid ? global : "(not UTF-8)");
        n++;
    }
    enum sdc_status st = names.failed ? SDC_NOMEM(err, what) : SDC_OK;
    if (n > 0 && !names.failed)
        st = sdc__ckpt_add_note(ckpt, SDC_NOTE_SECURITY, err,
                                "%s names %zu %s outside PyTorch, which a loader that trusts it "
                                "would import or call; nothing was executed here: %s%s",
                                what, n, n == 1 ? "global" : "globals", names.data,
                                n > SHOWN ? ", ..." : "");
    sdc__buf_release(&names);
    return st;
}
