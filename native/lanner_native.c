/* lanner._native: the loops of Lanner that run once for each message and are worth a compiler.
 *
 * Every function here has a reference in Python beside the code that calls it (lanner/native.py names
 * the rule), and the same tests run both. A function returns the same bytes as its reference. It reads
 * and writes only memory of objects that it has checked and holds a reference to, whatever its
 * arguments are: wrong types raise TypeError, numbers that do not fit raise OverflowError.
 *
 * Only the limited API of Python 3.11 is used, so one build serves every later version.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* CRC-32 ------------------------------------------------------------------------------------------ */

/* The polynomial of zlib, reflected. Eight bytes per step by eight tables, made when the module loads. */
static uint32_t crc_tables[8][256];

static void
make_crc_tables(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        crc_tables[0][n] = c;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int t = 1; t < 8; t++)
            crc_tables[t][n] = crc_tables[0][crc_tables[t - 1][n] & 0xFF] ^ (crc_tables[t - 1][n] >> 8);
}

/* Both inner functions take and return the register itself, which is the inverted checksum. */
static uint32_t
crc_by_tables(uint32_t c, const unsigned char *p, size_t n)
{
    while (n >= 8) {
        c ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        c = crc_tables[7][c & 0xFF] ^ crc_tables[6][c >> 8 & 0xFF] ^ crc_tables[5][c >> 16 & 0xFF]
            ^ crc_tables[4][c >> 24] ^ crc_tables[3][p[4]] ^ crc_tables[2][p[5]] ^ crc_tables[1][p[6]]
            ^ crc_tables[0][p[7]];
        p += 8;
        n -= 8;
    }
    while (n--)
        c = crc_tables[0][(c ^ *p++) & 0xFF] ^ (c >> 8);
    return c;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_CLMUL __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")

/* "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009): fold 64 bytes
 * at a time, then 16, then reduce by Barrett. n is at least 64 and a multiple of 16. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t
crc_by_clmul(uint32_t c, const unsigned char *p, size_t n)
{
    const __m128i k1k2 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i k3k4 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i k5k0 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i mask = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i x1 = _mm_xor_si128(_mm_loadu_si128((const __m128i *)p), _mm_cvtsi32_si128((int)c));
    __m128i x2 = _mm_loadu_si128((const __m128i *)(p + 16));
    __m128i x3 = _mm_loadu_si128((const __m128i *)(p + 32));
    __m128i x4 = _mm_loadu_si128((const __m128i *)(p + 48));
    p += 64;
    n -= 64;
#define FOLD(x, k, next)                                                                                       \
    _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next)
    while (n >= 64) {
        x1 = FOLD(x1, k1k2, _mm_loadu_si128((const __m128i *)p));
        x2 = FOLD(x2, k1k2, _mm_loadu_si128((const __m128i *)(p + 16)));
        x3 = FOLD(x3, k1k2, _mm_loadu_si128((const __m128i *)(p + 32)));
        x4 = FOLD(x4, k1k2, _mm_loadu_si128((const __m128i *)(p + 48)));
        p += 64;
        n -= 64;
    }
    x1 = FOLD(x1, k3k4, x2);
    x1 = FOLD(x1, k3k4, x3);
    x1 = FOLD(x1, k3k4, x4);
    while (n >= 16) {
        x1 = FOLD(x1, k3k4, _mm_loadu_si128((const __m128i *)p));
        p += 16;
        n -= 16;
    }
#undef FOLD
    /* 128 bits to 64. */
    x2 = _mm_clmulepi64_si128(x1, k3k4, 0x10);
    x1 = _mm_xor_si128(_mm_srli_si128(x1, 8), x2);
    x2 = _mm_srli_si128(x1, 4);
    x1 = _mm_clmulepi64_si128(_mm_and_si128(x1, mask), k5k0, 0x00);
    x1 = _mm_xor_si128(x1, x2);
    /* Barrett: 64 bits to 32. */
    x2 = _mm_clmulepi64_si128(_mm_and_si128(x1, mask), poly, 0x10);
    x2 = _mm_clmulepi64_si128(_mm_and_si128(x2, mask), poly, 0x00);
    x1 = _mm_xor_si128(x1, x2);
    return (uint32_t)_mm_extract_epi32(x1, 1);
}
#else
#define HAS_CLMUL 0
static uint32_t
crc_by_clmul(uint32_t c, const unsigned char *p, size_t n)
{
    return crc_by_tables(c, p, n);
}
#endif

static int has_clmul;

static uint32_t
checksum(const unsigned char *p, size_t n, uint32_t value)
{
    uint32_t c = ~value;
    if (has_clmul && n >= 64) {
        size_t most = n & ~(size_t)15;
        c = crc_by_clmul(c, p, most);
        p += most;
        n -= most;
    }
    return ~crc_by_tables(c, p, n);
}

/* Numbers and arguments --------------------------------------------------------------------------- */

static void
put_le(unsigned char *p, uint64_t v, int size)
{
    for (int i = 0; i < size; i++)
        p[i] = (unsigned char)(v >> 8 * i);
}

/* The 32-bit number at `p`. */
static uint64_t
get_le(const unsigned char *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
}

static void
put_be(unsigned char *p, uint64_t v, int size)
{
    for (int i = 0; i < size; i++)
        p[i] = (unsigned char)(v >> 8 * (size - 1 - i));
}

/* Read an int of Python. Return -1 with an exception set if it is none, or above `highest`. */
static int
as_number(PyObject *value, uint64_t highest, const char *what, uint64_t *number)
{
    unsigned long long got = PyLong_AsUnsignedLongLong(value);
    if (got == (unsigned long long)-1 && PyErr_Occurred())
        return -1;
    if (got > highest) {
        PyErr_Format(PyExc_OverflowError, "%s: %llu is above %llu", what, got, (unsigned long long)highest);
        return -1;
    }
    *number = got;
    return 0;
}

static int
has_count(Py_ssize_t found, Py_ssize_t wanted, const char *name)
{
    if (found == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, %zd were given", name, wanted, found);
    return 0;
}

static int
is_kind(int is_right, const char *what, const char *kind)
{
    if (!is_right)
        PyErr_Format(PyExc_TypeError, "%s must be a %s", what, kind);
    return is_right;
}

/* Return a new reference to the value of a dictionary; NULL without an exception if there is none. */
static PyObject *
found_in(PyObject *dict, PyObject *key)
{
    PyObject *value = PyDict_GetItemWithError(dict, key);
    Py_XINCREF(value);
    return value;
}

static int
append_new(PyObject *list, PyObject *item)
{
    if (!item)
        return -1;
    int result = PyList_Append(list, item);
    Py_DECREF(item);
    return result;
}

/* Records of messages (store/record.py) ----------------------------------------------------------- */

#define RECORD_HEADER 24
#define KEY_SIZE 16
#define INDEX_ENTRY_SIZE 12
#define OPERATION_HEAD 7
#define FORMAT_INLINE 1
#define STATE_AVAILABLE 0
#define STATE_LOCKED 1
#define MAX_U64 UINT64_MAX
#define MAX_U32 UINT32_MAX

typedef struct {
    PyObject *packet, *flags, *abort_count, *move_count, *arrived;
} State;

static int
attribute(PyObject *record, PyObject *name, uint64_t highest, int is_count, const char *what, uint64_t *number)
{
    PyObject *value = PyObject_GetAttr(record, name);
    if (!value)
        return -1;
    int result = as_number(value, is_count ? MAX_U64 : highest, what, number);
    Py_DECREF(value);
    if (!result && *number > highest)
        *number = highest; /* a count stays at its highest value */
    return result;
}

static PyObject *
packet_of(State *state, PyObject *record)
{
    PyObject *packet = PyObject_GetAttr(record, state->packet);
    if (packet && !PyBytes_Check(packet)) {
        Py_DECREF(packet);
        PyErr_SetString(PyExc_TypeError, "the packet of a record must be bytes");
        return NULL;
    }
    return packet;
}

/* Return the stored form of a record, as record.encode does. */
static PyObject *
encoded_record(State *state, PyObject *record, uint64_t visibility)
{
    uint64_t flags, aborts, moves, arrived;
    if (attribute(record, state->flags, 0xFFFF, 0, "flags", &flags) < 0
        || attribute(record, state->abort_count, 0xFFFF, 1, "abort_count", &aborts) < 0
        || attribute(record, state->move_count, 0xFFFF, 1, "move_count", &moves) < 0
        || attribute(record, state->arrived, MAX_U32, 0, "arrived", &arrived) < 0)
        return NULL;
    PyObject *packet = packet_of(state, record);
    if (!packet)
        return NULL;
    Py_ssize_t size = PyBytes_Size(packet);
    if (size > (Py_ssize_t)(MAX_U32 - RECORD_HEADER)) {
        Py_DECREF(packet);
        PyErr_SetString(PyExc_OverflowError, "the packet of a record is longer than an operation can say");
        return NULL;
    }
    PyObject *value = PyBytes_FromStringAndSize(NULL, RECORD_HEADER + size);
    if (value) {
        unsigned char *p = (unsigned char *)PyBytes_AsString(value);
        p[4] = FORMAT_INLINE;
        p[5] = visibility ? STATE_AVAILABLE : STATE_LOCKED;
        put_le(p + 6, flags, 2);
        put_le(p + 8, aborts, 2);
        put_le(p + 10, moves, 2);
        put_le(p + 12, visibility, 8);
        put_le(p + 20, arrived, 4);
        memcpy(p + RECORD_HEADER, PyBytes_AsString(packet), (size_t)size);
        put_le(p, checksum(p + 4, (size_t)(RECORD_HEADER - 4 + size), 0), 4);
    }
    Py_DECREF(packet);
    return value;
}

static void
put_key(unsigned char *p, uint64_t number, uint64_t generation, uint64_t last)
{
    put_be(p, number, 4);
    put_be(p + 4, generation, 4);
    put_be(p + 8, last, 8);
}

static PyObject *
new_key(uint64_t number, uint64_t generation, uint64_t last)
{
    PyObject *key = PyBytes_FromStringAndSize(NULL, KEY_SIZE);
    if (key)
        put_key((unsigned char *)PyBytes_AsString(key), number, generation, last);
    return key;
}

static void
put_head(unsigned char *p, uint64_t kind, uint64_t key_size, uint64_t value_size)
{
    put_le(p, kind, 1);
    put_le(p + 1, key_size, 2);
    put_le(p + 3, value_size, 4);
}

/* The number of a key in `visible`, 0 if it has none. Return -1 with an exception, 0 if there is none, 1. */
static int
visibility_of(PyObject *visible, PyObject *key, uint64_t *number)
{
    *number = 0;
    PyObject *value = found_in(visible, key);
    if (!value)
        return PyErr_Occurred() ? -1 : 0;
    int result = as_number(value, MAX_U64, "visibility number", number);
    Py_DECREF(value);
    return result < 0 ? -1 : 1;
}

/* log_rows(kind, number, generation, rows, visible, encoded, limit) -> (size, parts) | None */
static PyObject *
log_rows(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    State *state = PyModule_GetState(module);
    uint64_t kind, number, generation, limit, lookup_id, visibility, size = 0;
    if (!has_count(count, 7, "log_rows") || as_number(args[0], 0xFF, "kind", &kind) < 0
        || as_number(args[1], MAX_U32, "number", &number) < 0
        || as_number(args[2], MAX_U32, "generation", &generation) < 0
        || !is_kind(PyDict_Check(args[3]), "rows", "dict") || !is_kind(PyDict_Check(args[4]), "visible", "dict")
        || !is_kind(PyDict_Check(args[5]), "encoded", "dict") || as_number(args[6], MAX_U64, "limit", &limit) < 0)
        return NULL;
    PyObject *visible = args[4], *encoded = args[5];
    /* A list of its own, so that nothing that the records' attributes might run can change it. */
    PyObject *items = PyDict_Items(args[3]);
    PyObject *parts = items ? PyList_New(0) : NULL;
    if (!parts)
        goto bad;
    Py_ssize_t length = PyList_Size(items);
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = PyList_GetItem(items, i);
        PyObject *key = PyTuple_GetItem(item, 0), *record = PyTuple_GetItem(item, 1);
        if (as_number(key, MAX_U64, "lookup id", &lookup_id) < 0 || visibility_of(visible, key, &visibility) < 0)
            goto bad;
        PyObject *value = encoded_record(state, record, visibility);
        if (!value)
            goto bad;
        uint64_t value_size = (uint64_t)PyBytes_Size(value);
        size += value_size;
        int is_set = PyDict_SetItem(encoded, key, value);
        if (is_set < 0 || size > limit) {
            Py_DECREF(value);
            if (is_set < 0)
                goto bad;
            Py_DECREF(items);
            Py_DECREF(parts);
            Py_RETURN_NONE;
        }
        PyObject *head = PyBytes_FromStringAndSize(NULL, OPERATION_HEAD + KEY_SIZE);
        if (!head) {
            Py_DECREF(value);
            goto bad;
        }
        unsigned char *p = (unsigned char *)PyBytes_AsString(head);
        put_head(p, kind, KEY_SIZE, value_size);
        put_key(p + OPERATION_HEAD, number, generation, lookup_id);
        if (append_new(parts, head) < 0) {
            Py_DECREF(value);
            goto bad;
        }
        if (append_new(parts, value) < 0)
            goto bad;
    }
    Py_DECREF(items);
    return Py_BuildValue("(KN)", (unsigned long long)size, parts);
bad:
    Py_XDECREF(items);
    Py_XDECREF(parts);
    return NULL;
}

/* log_deletions(kind, number, generation, hidden, references) -> bytes */
static PyObject *
log_deletions(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    uint64_t kind, number, generation, lookup_id, visibility;
    if (!has_count(count, 5, "log_deletions") || as_number(args[0], 0xFF, "kind", &kind) < 0
        || as_number(args[1], MAX_U32, "number", &number) < 0
        || as_number(args[2], MAX_U32, "generation", &generation) < 0
        || !is_kind(PyDict_Check(args[3]), "hidden", "dict")
        || !is_kind(PyDict_Check(args[4]), "references", "dict"))
        return NULL;
    const Py_ssize_t each = OPERATION_HEAD + KEY_SIZE + 8;
    PyObject *result = NULL, *references = args[4];
    PyObject *items = PyDict_Items(args[3]);
    if (!items)
        return NULL;
    Py_ssize_t length = PyList_Size(items);
    /* The references of the keys, held while the size is added up and again while they are written. */
    PyObject *found = PyList_New(length);
    if (!found)
        goto done;
    Py_ssize_t total = length * each;
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *reference = found_in(references, PyTuple_GetItem(PyList_GetItem(items, i), 0));
        if (!reference) {
            if (PyErr_Occurred())
                goto done;
            reference = PyBytes_FromStringAndSize(NULL, 0);
            if (!reference)
                goto done;
        }
        if (!is_kind(PyBytes_Check(reference), "a reference", "bytes")) {
            Py_DECREF(reference);
            goto done;
        }
        Py_ssize_t size = PyBytes_Size(reference);
        PyList_SetItem(found, i, reference); /* takes the reference over */
        if (size > (Py_ssize_t)0xFFFFFF || total > PY_SSIZE_T_MAX - size) {
            PyErr_SetString(PyExc_OverflowError, "the key of a staged row is too long");
            goto done;
        }
        total += size;
    }
    result = PyBytes_FromStringAndSize(NULL, total);
    if (!result)
        goto done;
    unsigned char *p = (unsigned char *)PyBytes_AsString(result);
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = PyList_GetItem(items, i), *reference = PyList_GetItem(found, i);
        if (as_number(PyTuple_GetItem(item, 0), MAX_U64, "lookup id", &lookup_id) < 0
            || as_number(PyTuple_GetItem(item, 1), MAX_U64, "visibility number", &visibility) < 0) {
            Py_DECREF(result);
            result = NULL;
            goto done;
        }
        Py_ssize_t size = PyBytes_Size(reference);
        put_head(p, kind, KEY_SIZE, (uint64_t)(8 + size));
        put_key(p + OPERATION_HEAD, number, generation, lookup_id);
        put_be(p + OPERATION_HEAD + KEY_SIZE, visibility, 8);
        memcpy(p + each, PyBytes_AsString(reference), (size_t)size);
        p += each + size;
    }
done:
    Py_DECREF(items);
    Py_XDECREF(found);
    return result;
}

/* checkpoint_rows(number, generation, some, visible, encoded) -> (messages, index) */
static PyObject *
checkpoint_rows(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    State *state = PyModule_GetState(module);
    uint64_t number, generation, lookup_id, visibility;
    if (!has_count(count, 5, "checkpoint_rows") || as_number(args[0], MAX_U32, "number", &number) < 0
        || as_number(args[1], MAX_U32, "generation", &generation) < 0
        || !is_kind(PyList_Check(args[2]), "some", "list") || !is_kind(PyDict_Check(args[3]), "visible", "dict")
        || !is_kind(PyDict_Check(args[4]), "encoded", "dict"))
        return NULL;
    PyObject *visible = args[3], *encoded = args[4], *pair = NULL, *value = NULL;
    PyObject *messages = PyList_New(0), *index = PyList_New(0);
    if (!messages || !index)
        goto bad;
    /* The size is asked for again each time, and the pair is held: the list is the caller's. */
    for (Py_ssize_t i = 0; i < PyList_Size(args[2]); i++) {
        pair = PyList_GetItem(args[2], i);
        if (!pair)
            goto bad;
        Py_INCREF(pair);
        if (!is_kind(PyTuple_Check(pair) && PyTuple_Size(pair) == 2, "a row", "pair"))
            goto bad;
        PyObject *key = PyTuple_GetItem(pair, 0), *record = PyTuple_GetItem(pair, 1);
        int is_visible = visibility_of(visible, key, &visibility);
        if (is_visible < 0 || as_number(key, MAX_U64, "lookup id", &lookup_id) < 0)
            goto bad;
        value = found_in(encoded, key);
        if (!value && PyErr_Occurred())
            goto bad;
        if (value && !is_kind(PyBytes_Check(value), "an encoded row", "bytes"))
            goto bad;
        if (!value && !(value = encoded_record(state, record, visibility)))
            goto bad;
        if (append_new(messages, Py_BuildValue("(NO)", new_key(number, generation, lookup_id), value)) < 0)
            goto bad;
        if (is_visible) {
            PyObject *packet = packet_of(state, record);
            if (!packet)
                goto bad;
            Py_ssize_t size = PyBytes_Size(packet);
            Py_DECREF(packet);
            if (size > (Py_ssize_t)MAX_U32) {
                PyErr_SetString(PyExc_OverflowError, "the packet of a record is longer than its index can say");
                goto bad;
            }
            PyObject *entry = PyBytes_FromStringAndSize(NULL, INDEX_ENTRY_SIZE);
            if (!entry)
                goto bad;
            unsigned char *p = (unsigned char *)PyBytes_AsString(entry);
            put_be(p, lookup_id, 8);
            put_be(p + 8, (uint64_t)size, 4);
            if (append_new(index, Py_BuildValue("(NN)", new_key(number, generation, visibility), entry)) < 0)
                goto bad;
        }
        Py_CLEAR(value);
        Py_CLEAR(pair);
    }
    return Py_BuildValue("(NN)", messages, index);
bad:
    Py_XDECREF(pair);
    Py_XDECREF(value);
    Py_XDECREF(messages);
    Py_XDECREF(index);
    return NULL;
}

/* Rows of staged messages (store/rows.py) ---------------------------------------------------------- */

#define STAGED_HEAD 13
#define STAGED_KEY 21
#define CHECKSUM_SIZE 4
#define FORMAT_REFERENCE 2

/* Lists of keys and of values, and no pairs: those would be garbage collected, and take as long as the rest.
 * staged_rows(head, first, packets) -> (keys, values) */
static PyObject *
staged_rows(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    uint64_t first;
    if (!has_count(count, 3, "staged_rows") || !is_kind(PyBytes_Check(args[0]), "head", "bytes")
        || !is_kind(PyList_Check(args[2]), "packets", "list") || as_number(args[1], MAX_U64, "first", &first) < 0)
        return NULL;
    if (PyBytes_Size(args[0]) != STAGED_HEAD) {
        PyErr_SetString(PyExc_ValueError, "the head of a key has another size");
        return NULL;
    }
    PyObject *keys = PyList_New(0), *values = PyList_New(0);
    if (!keys || !values)
        goto bad;
    for (Py_ssize_t i = 0; i < PyList_Size(args[2]); i++) {
        PyObject *packet = PyList_GetItem(args[2], i);
        if (!packet || !is_kind(PyBytes_Check(packet), "a packet", "bytes"))
            goto bad;
        const Py_ssize_t size = PyBytes_Size(packet);
        PyObject *key = PyBytes_FromStringAndSize(NULL, STAGED_KEY);
        PyObject *value = PyBytes_FromStringAndSize(NULL, CHECKSUM_SIZE + size);
        if (key && value) {
            unsigned char *k = (unsigned char *)PyBytes_AsString(key), *v = (unsigned char *)PyBytes_AsString(value);
            memcpy(k, PyBytes_AsString(args[0]), STAGED_HEAD);
            put_be(k + STAGED_HEAD, first + (uint64_t)i, 8);
            memcpy(v + CHECKSUM_SIZE, PyBytes_AsString(packet), (size_t)size);
            put_le(v, checksum(v + CHECKSUM_SIZE, (size_t)size, 0), CHECKSUM_SIZE);
        }
        const int has_key = append_new(keys, key), has_value = append_new(values, value);
        if (has_key < 0 || has_value < 0)
            goto bad;
    }
    return Py_BuildValue("(NN)", keys, values);
bad:
    Py_XDECREF(keys);
    Py_XDECREF(values);
    return NULL;
}

/* published_rows(number, generation, lookup_id, visibility, count, head, first, arrived, flags, size)
 * -> (keys of messages, values, keys of the index, entries) */
static PyObject *
published_rows(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    uint64_t number, generation, lookup_id, visibility, count, first, arrived, flags, size;
    if (!has_count(given, 10, "published_rows") || !is_kind(PyBytes_Check(args[5]), "head", "bytes")
        || as_number(args[0], MAX_U32, "number", &number) < 0
        || as_number(args[1], MAX_U32, "generation", &generation) < 0
        || as_number(args[2], MAX_U64, "lookup id", &lookup_id) < 0
        || as_number(args[3], MAX_U64, "visibility", &visibility) < 0
        || as_number(args[4], MAX_U32, "count", &count) < 0 || as_number(args[6], MAX_U64, "first", &first) < 0
        || as_number(args[7], MAX_U32, "arrived", &arrived) < 0 || as_number(args[8], 0xFFFF, "flags", &flags) < 0
        || as_number(args[9], MAX_U32, "size", &size) < 0)
        return NULL;
    if (PyBytes_Size(args[5]) != STAGED_HEAD) {
        PyErr_SetString(PyExc_ValueError, "the head of a key has another size");
        return NULL;
    }
    unsigned char value[RECORD_HEADER + STAGED_KEY], entry[INDEX_ENTRY_SIZE];
    memset(value, 0, sizeof value);
    value[4] = FORMAT_REFERENCE;
    put_le(value + 6, flags, 2);
    put_le(value + 20, arrived, 4);
    memcpy(value + RECORD_HEADER, PyBytes_AsString(args[5]), STAGED_HEAD);
    put_be(entry + 8, size, 4);
    PyObject *lists[4] = {PyList_New(0), PyList_New(0), PyList_New(0), PyList_New(0)};
    if (!lists[0] || !lists[1] || !lists[2] || !lists[3])
        goto bad;
    for (uint64_t i = 0; i < count; i++) {
        put_le(value + 12, visibility + i, 8);
        put_be(value + RECORD_HEADER + STAGED_HEAD, first + i, 8);
        put_le(value, checksum(value + CHECKSUM_SIZE, sizeof value - CHECKSUM_SIZE, 0), CHECKSUM_SIZE);
        put_be(entry, lookup_id + i, 8);
        if (append_new(lists[0], new_key(number, generation, lookup_id + i)) < 0
            || append_new(lists[1], PyBytes_FromStringAndSize((const char *)value, sizeof value)) < 0
            || append_new(lists[2], new_key(number, generation, visibility + i)) < 0
            || append_new(lists[3], PyBytes_FromStringAndSize((const char *)entry, sizeof entry)) < 0)
            goto bad;
    }
    return Py_BuildValue("(NNNN)", lists[0], lists[1], lists[2], lists[3]);
bad:
    for (int k = 0; k < 4; k++)
        Py_XDECREF(lists[k]);
    return NULL;
}

static uint64_t
take_le(const unsigned char *p, int size)
{
    uint64_t v = 0;
    for (int i = 0; i < size; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* decode_plain(raw, make) -> what `make` returns, or None */
static PyObject *
decode_plain(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (!has_count(count, 2, "decode_plain") || !is_kind(PyBytes_Check(args[0]), "a stored record", "bytes"))
        return NULL;
    const Py_ssize_t size = PyBytes_Size(args[0]);
    const unsigned char *p = (const unsigned char *)PyBytes_AsString(args[0]);
    /* Format, state, flags and counts: those of a message that nothing has happened to. */
    static const unsigned char plain[8] = {FORMAT_INLINE, STATE_AVAILABLE};
    if (size < RECORD_HEADER || memcmp(p + 4, plain, 8) || checksum(p + 4, (size_t)size - 4, 0) != get_le(p))
        Py_RETURN_NONE;
    return PyObject_CallFunction(args[1], "y#KK", (const char *)p + RECORD_HEADER, size - RECORD_HEADER,
                                 (unsigned long long)take_le(p + 20, 4), (unsigned long long)take_le(p + 12, 8));
}

/* crc32(data, value=0) -> int */
static PyObject *
crc32(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    unsigned long value = 0;
    Py_buffer data;
    if (count < 1 || count > 2) {
        PyErr_Format(PyExc_TypeError, "crc32 takes 1 or 2 arguments, %zd were given", count);
        return NULL;
    }
    if (count == 2) {
        value = PyLong_AsUnsignedLongMask(args[1]);
        if (value == (unsigned long)-1 && PyErr_Occurred())
            return NULL;
    }
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t result = checksum(data.buf, (size_t)data.len, (uint32_t)value);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(result);
}

/* Packets of equal shape (wire/packet_template.py) ------------------------------------------------ */

/* pack_packets(front, transaction_at, properties_at, extension, tail, allocation, highest, ordinals,
 *              labels, bodies, transactions) -> list[bytes]
 * `front` holds the headers of a packet up to the label. The numbers in them are filled in: PacketSize,
 * MessageID, the flags of the TransactionHeader (or-ed; if it is at -1 there is none), LabelLength,
 * MessageSize and AllocationBodySize (-1: that of the body). A packet above `highest` raises OverflowError. */
static PyObject *
pack_packets(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (!has_count(count, 11, "pack_packets") || !is_kind(PyBytes_Check(args[0]), "front", "bytes")
        || !is_kind(PyBytes_Check(args[3]), "extension", "bytes") || !is_kind(PyBytes_Check(args[4]), "tail", "bytes")
        || !is_kind(PyList_Check(args[7]) && PyList_Check(args[8]) && PyList_Check(args[9]) && PyList_Check(args[10]),
                    "ordinals, labels, bodies and transactions each", "list"))
        return NULL;
    const Py_ssize_t transaction_at = PyLong_AsSsize_t(args[1]), properties_at = PyLong_AsSsize_t(args[2]);
    const long long allocation = PyLong_AsLongLong(args[5]);
    uint64_t highest, transaction;
    if (PyErr_Occurred() || as_number(args[6], INT32_MAX, "highest", &highest) < 0)
        return NULL;
    const Py_ssize_t front_size = PyBytes_Size(args[0]), extension_size = PyBytes_Size(args[3]);
    const Py_ssize_t tail_size = PyBytes_Size(args[4]), length = PyList_Size(args[9]);
    if (properties_at < 60 || front_size - 56 != properties_at || transaction_at < -1
        || (transaction_at >= 0 && (transaction_at < 60 || transaction_at > properties_at - 4)) || allocation < -1
        || allocation > (long long)MAX_U32 || PyList_Size(args[7]) != length || PyList_Size(args[8]) != length
        || (transaction_at >= 0 && PyList_Size(args[10]) != length)) {
        PyErr_SetString(PyExc_ValueError, "the template is wrong, or its lists are not equally long");
        return NULL;
    }
    const uint64_t fixed = (uint64_t)front_size + (uint64_t)extension_size + (uint64_t)tail_size;
    PyObject *packets = PyList_New(0);
    if (!packets)
        return NULL;
    for (Py_ssize_t i = 0; i < length; i++) {
        /* No code of Python runs in this loop, so the lists and what is in them stay as they are. */
        PyObject *label = PyList_GetItem(args[8], i), *body = PyList_GetItem(args[9], i);
        PyObject *ordinal_object = PyList_GetItem(args[7], i);
        if (!label || !body || !ordinal_object)
            goto bad;
        if (!is_kind(PyBytes_Check(label) && PyBytes_Check(body), "a label and a body each", "bytes")
            || !is_kind(PyLong_Check(ordinal_object), "an ordinal", "int"))
            goto bad;
        unsigned long long ordinal = PyLong_AsUnsignedLongLongMask(ordinal_object);
        if (ordinal == (unsigned long long)-1 && PyErr_Occurred())
            goto bad;
        const Py_ssize_t label_size = PyBytes_Size(label), body_size = PyBytes_Size(body);
        const uint64_t gap = -((uint64_t)label_size + (uint64_t)extension_size + (uint64_t)body_size) & 3;
        const uint64_t size = fixed + (uint64_t)label_size + (uint64_t)body_size + gap;
        if (size > highest || label_size > 511) {
            PyErr_Format(PyExc_OverflowError, "message %zd: a packet of %llu bytes, a label of %zd", i,
                         (unsigned long long)size, label_size);
            goto bad;
        }
        transaction = 0;
        if (transaction_at >= 0) {
            PyObject *number = PyList_GetItem(args[10], i);
            if (!number || !is_kind(PyLong_Check(number), "a transaction", "int")
                || as_number(number, MAX_U32, "transaction", &transaction) < 0)
                goto bad;
        }
        PyObject *packet = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (!packet)
            goto bad;
        unsigned char *start = (unsigned char *)PyBytes_AsString(packet), *p = start;
        memcpy(p, PyBytes_AsString(args[0]), (size_t)front_size);
        put_le(p + 8, size, 4);
        put_le(p + 56, ordinal, 4);
        if (transaction_at >= 0)
            for (int k = 0; k < 4; k++)
                p[transaction_at + k] |= (unsigned char)(transaction >> 8 * k);
        p[properties_at + 1] = (unsigned char)(label_size >> 1);
        put_le(p + properties_at + 32, (uint64_t)body_size, 4);
        put_le(p + properties_at + 36, allocation < 0 ? (uint64_t)body_size : (uint64_t)allocation, 4);
        p += front_size;
        memcpy(p, PyBytes_AsString(label), (size_t)label_size);
        p += label_size;
        memcpy(p, PyBytes_AsString(args[3]), (size_t)extension_size);
        p += extension_size;
        memcpy(p, PyBytes_AsString(body), (size_t)body_size);
        p += body_size;
        memset(p, 0, (size_t)gap);
        memcpy(p + gap, PyBytes_AsString(args[4]), (size_t)tail_size);
        if (append_new(packets, packet) < 0)
            goto bad;
    }
    return packets;
bad:
    Py_DECREF(packets);
    return NULL;
}

/* Runs of packets of equal shape (wire/packet_runs.py) -------------------------------------------- */

enum {
    FIXED_AT = 12,
    FIXED_END = 52,
    SENT_TIME_END = 56,
    FLAGS_AT = 60,
    DESTINATION_AT = 64,
    TRANSACTION_SIZE = 20,
    PROPERTIES_SIZE = 56,
    MAX_LABEL = 0xFA,
    MAX_ASKED = 0xF,
    ID_SHIFT = 4,
    ID_MASK = 0xFFFFF,
};
static const uint64_t max_packet = 0x400000;

/* Whether a label of `size` bytes, which are pairs, has one null character: its last. */
static int
is_label_sound(const unsigned char *label, Py_ssize_t size)
{
    if (!size)
        return 1;
    for (Py_ssize_t i = 0; i < size - 3; i++)
        if (!label[i] && !label[i + 1])
            return 0;
    /* The byte before may be zero, too: the second of the character in front. */
    return !label[size - 1] && !label[size - 2];
}

/* Whether the `size` bytes at `p` are a packet of the shape of the template `t`. */
static int
has_shape(const unsigned char *p, uint64_t size, const unsigned char *t, Py_ssize_t transaction, Py_ssize_t properties)
{
    const Py_ssize_t end = transaction < 0 ? properties : transaction;
    if (memcmp(p, t, 8) || memcmp(p + FIXED_AT, t + FIXED_AT, FIXED_END - FIXED_AT)
        || memcmp(p + FLAGS_AT, t + FLAGS_AT, (size_t)(end - FLAGS_AT)))
        return 0;
    if (transaction >= 0) {
        const Py_ssize_t behind = transaction + TRANSACTION_SIZE;
        if (p[transaction] & 1 || memcmp(p + behind, t + behind, (size_t)(properties - behind)))
            return 0;
    }
    p += properties;
    t += properties;
    const uint64_t label_size = 2 * (uint64_t)p[1];
    const uint64_t sum = (uint64_t)properties + PROPERTIES_SIZE + label_size + get_le(p + 32) + get_le(p + 52);
    return !memcmp(p + 2, t + 2, 2) && !memcmp(p + 40, t + 40, 4) && p[1] <= MAX_LABEL
        && ((sum + 3) & ~(uint64_t)3) == size && is_label_sound(p + PROPERTIES_SIZE, (Py_ssize_t)label_size);
}

/* What is written over in a packet: `front` is what it begins with, `header` its TransactionHeader, if it has one.
 * The number of the transaction in that header is higher by `step` in each next packet. */
typedef struct {
    const unsigned char *front, *header;
    uint64_t ordinal, flags, step;
} Stamp;

/* Whether a program may ask for what the packet at `p` asks for, as client_packet.Stamp has it. */
static int
is_sendable(const unsigned char *properties)
{
    return properties[0] <= MAX_ASKED && !memcmp(properties + 32, properties + 36, 4);
}

/* equal_packets and stamp_packets, which has a stamp. */
static PyObject *
packets_of_shape(PyObject *const *args, Stamp *stamp)
{
    if (!is_kind(PyBytes_Check(args[2]), "template", "bytes"))
        return NULL;
    Py_ssize_t start = PyLong_AsSsize_t(args[1]);
    const Py_ssize_t transaction = PyLong_AsSsize_t(args[3]), properties = PyLong_AsSsize_t(args[4]);
    if (PyErr_Occurred())
        return NULL;
    /* In this order no sum or difference overflows. */
    if (start < 0 || transaction < -1 || (transaction >= 0 && transaction < DESTINATION_AT)
        || properties < DESTINATION_AT || properties > PyBytes_Size(args[2]) - PROPERTIES_SIZE
        || transaction > properties - TRANSACTION_SIZE) {
        PyErr_SetString(PyExc_ValueError, "the template does not have its headers there");
        return NULL;
    }
    const unsigned char *template = (const unsigned char *)PyBytes_AsString(args[2]);
    Py_buffer data;
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *packets = PyList_New(0), *result = NULL;
    while (packets && data.len - start >= properties + PROPERTIES_SIZE) {
        const unsigned char *p = (const unsigned char *)data.buf + start;
        const uint64_t size = get_le(p + 8);
        if (size < (uint64_t)(properties + PROPERTIES_SIZE) || size > max_packet || size > (uint64_t)(data.len - start)
            || !has_shape(p, size, template, transaction, properties) || (stamp && !is_sendable(p + properties)))
            break;
        PyObject *packet = PyBytes_FromStringAndSize((const char *)p, (Py_ssize_t)size);
        if (packet && stamp) {
            unsigned char *q = (unsigned char *)PyBytes_AsString(packet);
            memcpy(q, stamp->front, DESTINATION_AT);
            put_le(q + 8, size, 4);
            put_le(q + 56, stamp->ordinal++, 4);
            if (transaction >= 0) {
                memcpy(q + transaction, stamp->header, TRANSACTION_SIZE);
                put_le(q + transaction, stamp->flags, 4);
                stamp->flags = (stamp->flags & ~((uint64_t)ID_MASK << ID_SHIFT))
                               | ((((stamp->flags >> ID_SHIFT) + stamp->step) & ID_MASK) << ID_SHIFT);
            }
        }
        if (append_new(packets, packet) < 0)
            Py_CLEAR(packets);
        start += (Py_ssize_t)size;
    }
    PyBuffer_Release(&data);
    if (packets)
        result = Py_BuildValue("(Nn)", packets, start);
    return result;
}

/* equal_packets(data, start, template, transaction, properties) -> (list[bytes], int) */
static PyObject *
equal_packets(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    return has_count(count, 5, "equal_packets") ? packets_of_shape(args, NULL) : NULL;
}

/* stamp_packets(data, start, template, transaction, properties, front, header, ordinal, step) -> (list[bytes], int) */
static PyObject *
stamp_packets(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (!has_count(count, 9, "stamp_packets")
        || !is_kind(PyBytes_Check(args[5]) && PyBytes_Check(args[6]), "front and header each", "bytes"))
        return NULL;
    const long long transaction = PyLong_AsLongLong(args[3]);
    Stamp stamp = {(const unsigned char *)PyBytes_AsString(args[5]), (const unsigned char *)PyBytes_AsString(args[6]),
                   0, 0, 0};
    if (PyErr_Occurred() || as_number(args[7], MAX_U64, "ordinal", &stamp.ordinal) < 0
        || as_number(args[8], MAX_U32, "step", &stamp.step) < 0)
        return NULL;
    if (PyBytes_Size(args[5]) != DESTINATION_AT || PyBytes_Size(args[6]) != (transaction < 0 ? 0 : TRANSACTION_SIZE)) {
        PyErr_SetString(PyExc_ValueError, "what is written over has another size");
        return NULL;
    }
    if (transaction >= 0)
        stamp.flags = get_le(stamp.header);
    return packets_of_shape(args, &stamp);
}

/* What packets hold (wire/packet_contents.py) ------------------------------------------------------ */

/* packet_contents(packets, properties) -> (bytes of bodies, digest) */
static PyObject *
packet_contents(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (!has_count(count, 2, "packet_contents") || !is_kind(PyList_Check(args[0]), "packets", "list"))
        return NULL;
    const Py_ssize_t properties = PyLong_AsSsize_t(args[1]);
    if (PyErr_Occurred())
        return NULL;
    uint64_t bodies = 0, digest = 0;
    for (Py_ssize_t i = 0; i < PyList_Size(args[0]); i++) {
        PyObject *packet = PyList_GetItem(args[0], i);
        if (!packet || !is_kind(PyBytes_Check(packet), "a packet", "bytes"))
            return NULL;
        const Py_ssize_t size = PyBytes_Size(packet);
        if (properties < 0 || properties > size - PROPERTIES_SIZE) {
            PyErr_SetString(PyExc_ValueError, "a packet does not have its properties there");
            return NULL;
        }
        const unsigned char *p = (const unsigned char *)PyBytes_AsString(packet) + properties;
        const uint64_t left = (uint64_t)(size - properties - PROPERTIES_SIZE);
        const uint64_t label = 2 * (uint64_t)p[1], body = get_le(p + 32), extension = get_le(p + 52);
        if (label + extension + body > left) {
            PyErr_SetString(PyExc_ValueError, "a packet is shorter than its label, extension and body");
            return NULL;
        }
        p += PROPERTIES_SIZE;
        digest += (uint64_t)checksum(p + label + extension, (size_t)body, checksum(p, (size_t)label, 0)) + 1;
        bodies += body;
    }
    return Py_BuildValue("(KK)", (unsigned long long)bodies, (unsigned long long)digest);
}

/* Rows of the log of events (engine/event_rows.py) ------------------------------------------------ */

#define EVENT_SIZE 88
enum { CG = 0x1, SH = 0x80000, TH = 0x100000, CQ = 0x400000, SECURITY_SIZE = 16 };
/* The sizes of the names of queues by their type; -1: their length stands before them. */
static const int name_sizes[8] = {0, 0, 4, 4, 4, 16, 20, -1};

/* Where the headers of a packet begin and end that its event is made of; security is 0 if there is none. */
typedef struct {
    uint64_t security, sender_end, properties;
} Headers;

static int
find_headers(const unsigned char *p, uint64_t size, Headers *found)
{
    uint64_t at = DESTINATION_AT;
    const uint64_t flags = get_le(p + FLAGS_AT);
    for (int shift = 10; shift <= 16; shift += 3) {
        const int step = name_sizes[flags >> shift & 7];
        if (step < 0 && at + 2 > size)
            return 0;
        at = step < 0 ? (at + 2 + take_le(p + at, 2) + 3) & ~(uint64_t)3 : at + (uint64_t)step;
    }
    if (flags & CQ)
        at += 16;
    if (flags & TH) {
        if (at >= size)
            return 0;
        at += TRANSACTION_SIZE + (p[at] & CG ? 16 : 0);
    }
    found->security = found->sender_end = 0;
    if (flags & SH) {
        if (at + SECURITY_SIZE > size)
            return 0;
        found->security = at;
        found->sender_end = at + SECURITY_SIZE + take_le(p + at + 2, 2);
        uint64_t all = 0;
        for (int i = 1; i < 3; i++)
            all += (take_le(p + at + 2 + 2 * i, 2) + 3) & ~(uint64_t)3;
        for (int i = 0; i < 2; i++)
            all += (get_le(p + at + 8 + 4 * i) + 3) & ~(uint64_t)3;
        at += SECURITY_SIZE + ((take_le(p + at + 2, 2) + 3) & ~(uint64_t)3) + all;
        if (found->sender_end > size)
            return 0;
    }
    found->properties = at;
    return at + 44 <= size;
}

static int
item_number(PyObject *list, Py_ssize_t index, uint64_t highest, const char *what, uint64_t *number)
{
    PyObject *item = PyList_GetItem(list, index);
    return item && is_kind(PyLong_Check(item), what, "int") ? as_number(item, highest, what, number) : -1;
}

/* event_rows(kind, now, queue, reason, other, lookup_ids, packets, visibilities, aborts, senders)
 *     -> list[bytes | None] */
static PyObject *
event_rows(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    uint64_t kind, now, queue, reason, other, lookup_id, visibility, aborts;
    if (!has_count(count, 10, "event_rows") || as_number(args[0], 0xFF, "kind", &kind) < 0
        || as_number(args[1], MAX_U64, "now", &now) < 0 || as_number(args[2], MAX_U32, "queue", &queue) < 0
        || as_number(args[3], 0xFFFF, "reason", &reason) < 0 || as_number(args[4], MAX_U32, "other", &other) < 0
        || !is_kind(PyList_Check(args[5]) && PyList_Check(args[6]) && PyList_Check(args[7]) && PyList_Check(args[8]),
                    "lookup_ids, packets, visibilities and aborts each", "list")
        || !is_kind(args[9] == Py_None || PyDict_Check(args[9]), "senders", "dict, or None"))
        return NULL;
    const Py_ssize_t length = PyList_Size(args[6]);
    if (PyList_Size(args[5]) != length || PyList_Size(args[7]) != length || PyList_Size(args[8]) != length) {
        PyErr_SetString(PyExc_ValueError, "the lists are not equally long");
        return NULL;
    }
    PyObject *rows = PyList_New(0);
    if (!rows)
        return NULL;
    for (Py_ssize_t i = 0; i < length; i++) {
        /* No code of Python runs in this loop, so the lists and what is in them stay as they are. */
        PyObject *packet = PyList_GetItem(args[6], i);
        Headers found;
        if (!packet || !is_kind(PyBytes_Check(packet), "a packet", "bytes")
            || item_number(args[5], i, MAX_U64, "a lookup id", &lookup_id) < 0
            || item_number(args[7], i, MAX_U64, "a visibility number", &visibility) < 0
            || item_number(args[8], i, MAX_U64, "a count of aborts", &aborts) < 0)
            goto bad;
        const unsigned char *p = (const unsigned char *)PyBytes_AsString(packet);
        const uint64_t size = (uint64_t)PyBytes_Size(packet);
        if (size < DESTINATION_AT || size > MAX_U32 || !find_headers(p, size, &found)) {
            PyErr_SetString(PyExc_ValueError, "a packet ends within its headers");
            goto bad;
        }
        const uint64_t flags = get_le(p + FLAGS_AT);
        const unsigned char *properties = p + found.properties;
        uint64_t sender = other, bits = (flags >> 5 & 1) | (uint64_t)(properties[0] & 15) << 4;
        bits |= (flags & TH ? 2 : 0) | (get_le(properties + 40) ? 8 : 0);
        if (found.security && args[9] != Py_None) {
            PyObject *header = PyBytes_FromStringAndSize((const char *)p + found.security,
                                                         (Py_ssize_t)(found.sender_end - found.security));
            PyObject *known = header ? found_in(args[9], header) : NULL;
            Py_XDECREF(header);
            if (!known) {
                if (PyErr_Occurred() || PyList_Append(rows, Py_None) < 0)
                    goto bad;
                continue;
            }
            uint64_t more = 0;
            const int is_pair = is_kind(PyTuple_Check(known) && PyTuple_Size(known) == 2
                                            && PyLong_Check(PyTuple_GetItem(known, 0))
                                            && PyLong_Check(PyTuple_GetItem(known, 1)),
                                        "a sender", "pair of numbers")
                && as_number(PyTuple_GetItem(known, 0), MAX_U32, "a sender", &sender) == 0
                && as_number(PyTuple_GetItem(known, 1), 0xFF, "a sender's flags", &more) == 0;
            Py_DECREF(known);
            if (!is_pair)
                goto bad;
            bits |= more;
        }
        PyObject *row = PyBytes_FromStringAndSize(NULL, EVENT_SIZE);
        if (!row)
            goto bad;
        unsigned char *q = (unsigned char *)PyBytes_AsString(row);
        put_le(q, now, 8);
        put_le(q + 8, lookup_id, 8);
        put_le(q + 16, visibility, 8);
        put_le(q + 24, queue, 4);
        put_le(q + 28, sender, 4);
        put_le(q + 32, size, 4);
        memcpy(q + 36, p + FIXED_END, 4); /* SentTime */
        memcpy(q + 40, properties + 2, 2); /* MessageClass */
        put_le(q + 42, reason, 2);
        q[44] = (unsigned char)kind;
        q[45] = (unsigned char)bits;
        put_le(q + 46, aborts < 0xFFFF ? aborts : 0xFFFF, 2);
        memcpy(q + 48, p + 16, 16); /* SourceQueueManager */
        memcpy(q + 64, p + SENT_TIME_END, 4); /* MessageID */
        memcpy(q + 68, properties + 4, 20); /* CorrelationID */
        if (append_new(rows, row) < 0)
            goto bad;
    }
    return rows;
bad:
    Py_DECREF(rows);
    return NULL;
}

/* equal_envelopes(packets) -> int */
static PyObject *
equal_envelopes(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (!has_count(count, 1, "equal_envelopes") || !is_kind(PyList_Check(args[0]), "packets", "list"))
        return NULL;
    const Py_ssize_t length = PyList_Size(args[0]);
    const char *first = NULL;
    Py_ssize_t index = 0;
    for (; index < length; index++) {
        PyObject *packet = PyList_GetItem(args[0], index);
        if (!packet || !is_kind(PyBytes_Check(packet), "a packet", "bytes"))
            return NULL;
        if (PyBytes_Size(packet) < DESTINATION_AT) {
            PyErr_SetString(PyExc_ValueError, "a packet is shorter than its fixed headers");
            return NULL;
        }
        const char *p = PyBytes_AsString(packet);
        if (!first)
            first = p;
        else if (memcmp(p + 2, first + 2, 2) || memcmp(p + FIXED_AT, first + FIXED_AT, SENT_TIME_END - FIXED_AT)
                 || memcmp(p + FLAGS_AT, first + FLAGS_AT, 4))
            break;
    }
    return PyLong_FromSsize_t(index);
}

/* Signatures of NTLM (rpc/pdu_keys.py) ------------------------------------------------------------- */

/* MD5 (RFC 1321), and HMAC (RFC 2104) with a key whose two blocks have been digested. */
typedef struct {
    uint32_t state[4];
    uint64_t size;
    unsigned char block[64];
} Md5;

static const uint32_t md5_sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

/* One step, and the four of a loop's turn, which rotate the parts of the state once. */
#define STEP(mix, a, b, c, d, i, word, turn)                                                                   \
    a += (mix) + md5_sines[i] + (uint32_t)get_le(p + 4 * ((word) & 15));                                       \
    a = (a << turn | a >> (32 - turn)) + b;
#define ROUND(from, MIX, factor, offset, t0, t1, t2, t3)                                                       \
    for (int i = from; i < from + 16; i += 4) {                                                                \
        STEP(MIX(b, c, d), a, b, c, d, i, factor * i + offset, t0)                                             \
        STEP(MIX(a, b, c), d, a, b, c, i + 1, factor * (i + 1) + offset, t1)                                   \
        STEP(MIX(d, a, b), c, d, a, b, i + 2, factor * (i + 2) + offset, t2)                                   \
        STEP(MIX(c, d, a), b, c, d, a, i + 3, factor * (i + 3) + offset, t3)                                   \
    }
#define MIX_F(x, y, z) (z ^ (x & (y ^ z)))
#define MIX_G(x, y, z) (y ^ (z & (x ^ y)))
#define MIX_H(x, y, z) (x ^ y ^ z)
#define MIX_I(x, y, z) (y ^ (x | ~z))

static void
md5_block(uint32_t state[4], const unsigned char *p)
{
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    ROUND(0, MIX_F, 1, 0, 7, 12, 17, 22)
    ROUND(16, MIX_G, 5, 1, 5, 9, 14, 20)
    ROUND(32, MIX_H, 3, 5, 4, 11, 16, 23)
    ROUND(48, MIX_I, 7, 0, 6, 10, 15, 21)
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}
#undef STEP
#undef ROUND

static void
md5_update(Md5 *md5, const unsigned char *p, size_t n)
{
    size_t held = (size_t)(md5->size & 63);
    md5->size += n;
    if (held) {
        const size_t missing = 64 - held;
        if (n < missing) {
            memcpy(md5->block + held, p, n);
            return;
        }
        memcpy(md5->block + held, p, missing);
        md5_block(md5->state, md5->block);
        p += missing;
        n -= missing;
    }
    for (; n >= 64; p += 64, n -= 64)
        md5_block(md5->state, p);
    memcpy(md5->block, p, n);
}

static void
md5_end(Md5 *md5, unsigned char digest[16])
{
    static const unsigned char padding[64] = {0x80};
    const size_t held = (size_t)(md5->size & 63);
    unsigned char bits[8];
    put_le(bits, md5->size << 3, 8);
    md5_update(md5, padding, held < 56 ? 56 - held : 120 - held);
    md5_update(md5, bits, 8);
    for (int i = 0; i < 4; i++)
        put_le(digest + 4 * i, md5->state[i], 4);
}

/* Begin a digest after one block: the key's octets, each combined with `mask`. */
static void
md5_begin(Md5 *md5, const unsigned char *key, size_t size, unsigned char mask)
{
    static const uint32_t start[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    unsigned char block[64];
    for (size_t i = 0; i < 64; i++)
        block[i] = (unsigned char)((i < size ? key[i] : 0) ^ mask);
    memcpy(md5->state, start, sizeof start);
    md5->size = 64;
    md5_block(md5->state, block);
}

#define KEY_OF_PDUS 16
#define TOKEN_SIZE 16

typedef struct {
    PyObject_HEAD
    Md5 inner, outer;
    unsigned char key[KEY_OF_PDUS];
    uint32_t stream[256], i, j; /* RC4; whole words are faster */
    int has_key_exchange;
    uint32_t number;
} PduKeys;

static void
rc4_begin(PduKeys *keys)
{
    uint32_t j = 0;
    for (uint32_t i = 0; i < 256; i++)
        keys->stream[i] = i;
    for (uint32_t i = 0; i < 256; i++) {
        const uint32_t one = keys->stream[i];
        j = (j + one + keys->key[i % KEY_OF_PDUS]) & 0xFF;
        keys->stream[i] = keys->stream[j];
        keys->stream[j] = one;
    }
    keys->i = keys->j = 0;
}

static void
rc4(PduKeys *keys, const unsigned char *restrict from, unsigned char *restrict to, size_t n)
{
    uint32_t *restrict s = keys->stream, i = keys->i, j = keys->j;
    for (size_t k = 0; k < n; k++) {
        i = (i + 1) & 0xFF;
        const uint32_t one = s[i];
        j = (j + one) & 0xFF;
        const uint32_t two = s[j];
        s[i] = two;
        s[j] = one;
        to[k] = (unsigned char)(from[k] ^ s[(one + two) & 0xFF]);
    }
    keys->i = i;
    keys->j = j;
}

typedef struct {
    const unsigned char *octets;
    size_t size;
} Part;

static Part
part_of(PyObject *bytes)
{
    return (Part){(unsigned char *)PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes)};
}

/* Compute the next token of the sequence. RC4 must already have passed over the stub. */
static void
next_token(PduKeys *keys, Part header, Part stub, Part trailer, unsigned char *token)
{
    unsigned char digest[16];
    Md5 md5 = keys->inner;
    put_le(token, 1, 4); /* MS-NLMP 2.2.2.9.1 Version */
    put_le(token + 12, keys->number++, 4);
    md5_update(&md5, token + 12, 4);
    md5_update(&md5, header.octets, header.size);
    md5_update(&md5, stub.octets, stub.size);
    md5_update(&md5, trailer.octets, trailer.size);
    md5_end(&md5, digest);
    md5 = keys->outer;
    md5_update(&md5, digest, 16);
    md5_end(&md5, digest);
    if (keys->has_key_exchange)
        rc4(keys, digest, token + 4, 8);
    else
        memcpy(token + 4, digest, 8);
}

/* Write the stub, after RC4 if it is sealed. */
static void
pass_over(PduKeys *keys, Part stub, unsigned char *to, int seals)
{
    if (seals)
        rc4(keys, stub.octets, to, stub.size);
    else
        memcpy(to, stub.octets, stub.size);
}

/* protect(header, stub, trailer, seals) -> PDU */
static PyObject *
keys_protect(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (!has_count(count, 4, "protect"))
        return NULL;
    for (int i = 0; i < 3; i++)
        if (!is_kind(PyBytes_Check(args[i]), "a part of a PDU", "bytes"))
            return NULL;
    const int seals = PyObject_IsTrue(args[3]);
    if (seals < 0)
        return NULL;
    const Part header = part_of(args[0]), stub = part_of(args[1]), trailer = part_of(args[2]);
    PyObject *pdu = PyBytes_FromStringAndSize(
        NULL, (Py_ssize_t)(header.size + stub.size + trailer.size + TOKEN_SIZE));
    if (!pdu)
        return NULL;
    unsigned char *to = (unsigned char *)PyBytes_AsString(pdu);
    memcpy(to, header.octets, header.size);
    to += header.size;
    pass_over((PduKeys *)self, stub, to, seals);
    to += stub.size;
    memcpy(to, trailer.octets, trailer.size);
    /* The signature is that of the stub before it was sealed. */
    next_token((PduKeys *)self, header, stub, trailer, to + trailer.size);
    return pdu;
}

/* unprotect(pdu, start, stop, seals) -> stub or None */
static PyObject *
keys_unprotect(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    unsigned char token[TOKEN_SIZE], differences = 0;
    uint64_t start, stop;
    if (!has_count(count, 4, "unprotect") || !is_kind(PyBytes_Check(args[0]), "a PDU", "bytes") ||
        as_number(args[1], MAX_U32, "start", &start) < 0 || as_number(args[2], MAX_U32, "stop", &stop) < 0)
        return NULL;
    const int seals = PyObject_IsTrue(args[3]);
    if (seals < 0)
        return NULL;
    const Part pdu = part_of(args[0]);
    if (start > stop || stop > pdu.size || pdu.size - stop < TOKEN_SIZE) {
        PyErr_SetString(PyExc_ValueError, "a PDU is shorter than its parts");
        return NULL;
    }
    PyObject *stub = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(stop - start));
    if (!stub)
        return NULL;
    pass_over((PduKeys *)self, (Part){pdu.octets + start, stop - start},
              (unsigned char *)PyBytes_AsString(stub), seals);
    const unsigned char *given = pdu.octets + pdu.size - TOKEN_SIZE;
    next_token((PduKeys *)self, (Part){pdu.octets, start}, part_of(stub),
               (Part){pdu.octets + stop, pdu.size - stop - TOKEN_SIZE}, token);
    for (int i = 0; i < TOKEN_SIZE; i++)
        differences |= given[i] ^ token[i];
    if (!differences)
        return stub;
    Py_DECREF(stub);
    Py_RETURN_NONE;
}

/* restart() */
static PyObject *
keys_restart(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    rc4_begin((PduKeys *)self);
    Py_RETURN_NONE;
}

/* PduKeys(sign_key, seal_key, has_key_exchange) */
static PyObject *
keys_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    const char *sign, *seal;
    Py_ssize_t sign_size, seal_size;
    int has_key_exchange;
    if (named && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "PduKeys takes no named arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "y#y#p:PduKeys", &sign, &sign_size, &seal, &seal_size, &has_key_exchange))
        return NULL;
    if (sign_size != KEY_OF_PDUS || seal_size != KEY_OF_PDUS) {
        PyErr_SetString(PyExc_ValueError, "the keys of a session have 16 octets");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PduKeys *keys = (PduKeys *)allocate(type, 0);
    if (!keys)
        return NULL;
    md5_begin(&keys->inner, (const unsigned char *)sign, KEY_OF_PDUS, 0x36);
    md5_begin(&keys->outer, (const unsigned char *)sign, KEY_OF_PDUS, 0x5C);
    memcpy(keys->key, seal, KEY_OF_PDUS);
    keys->has_key_exchange = has_key_exchange;
    rc4_begin(keys);
    return (PyObject *)keys;
}

static void
keys_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef keys_methods[] = {
    {"protect", (PyCFunction)(void (*)(void))keys_protect, METH_FASTCALL, NULL},
    {"unprotect", (PyCFunction)(void (*)(void))keys_unprotect, METH_FASTCALL, NULL},
    {"restart", keys_restart, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot keys_slots[] = {
    {Py_tp_new, keys_new}, {Py_tp_dealloc, keys_dealloc}, {Py_tp_methods, keys_methods}, {0, NULL},
};
static PyType_Spec keys_spec = {"lanner._native.PduKeys", sizeof(PduKeys), 0, Py_TPFLAGS_DEFAULT, keys_slots};

/* The module -------------------------------------------------------------------------------------- */

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
static PyMethodDef functions[] = {
    FUNCTION(crc32),        FUNCTION(log_rows),     FUNCTION(log_deletions),
    FUNCTION(pack_packets), FUNCTION(checkpoint_rows), FUNCTION(equal_packets),
    FUNCTION(stamp_packets), FUNCTION(packet_contents), FUNCTION(staged_rows),
    FUNCTION(published_rows), FUNCTION(equal_envelopes), FUNCTION(decode_plain),
    FUNCTION(event_rows),   {NULL, NULL, 0, NULL},
};

static int
prepare(PyObject *module)
{
    State *state = PyModule_GetState(module);
    make_crc_tables();
    has_clmul = HAS_CLMUL;
    state->packet = PyUnicode_InternFromString("packet");
    state->flags = PyUnicode_InternFromString("flags");
    state->abort_count = PyUnicode_InternFromString("abort_count");
    state->move_count = PyUnicode_InternFromString("move_count");
    state->arrived = PyUnicode_InternFromString("arrived");
    if (!state->packet || !state->flags || !state->abort_count || !state->move_count || !state->arrived)
        return -1;
    PyObject *type = PyType_FromModuleAndSpec(module, &keys_spec, NULL);
    const int result = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
    Py_XDECREF(type);
    return result;
}

static int
clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    if (state) {
        Py_CLEAR(state->packet);
        Py_CLEAR(state->flags);
        Py_CLEAR(state->abort_count);
        Py_CLEAR(state->move_count);
        Py_CLEAR(state->arrived);
    }
    return 0;
}

static void
destroy(void *module)
{
    clear(module);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "lanner._native", NULL, sizeof(State), functions, slots, NULL, clear, destroy,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
