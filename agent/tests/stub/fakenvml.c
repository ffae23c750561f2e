/* A stand-in for libnvidia-ml.so.1: the answers come from the file named by GOODPUT_STUB_STATE, read anew when it
 * changes. Lines are key=value; a missing key gives a healthy H100's answer. `<key>.ret=N` makes a call return N,
 * `<key>.ret=HANG` never return. Calls are appended to GOODPUT_STUB_LOG if that is set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char text[65536];
static struct timespec read_at;

static void refresh(void) {
    struct stat info;
    const char *path = getenv("GOODPUT_STUB_STATE");
    FILE *file;
    if (!path || stat(path, &info)) { text[0] = 0; return; }
    if (info.st_mtim.tv_sec == read_at.tv_sec && info.st_mtim.tv_nsec == read_at.tv_nsec) return;
    read_at = info.st_mtim;
    file = fopen(path, "r");
    if (!file) { text[0] = 0; return; }
    text[0] = '\n';
    text[1 + fread(text + 1, 1, sizeof text - 2, file)] = 0;
    fclose(file);
}

static const char *find(const char *key, char *out, size_t size) {
    char needle[160];
    const char *at, *end;
    size_t length;
    refresh();
    snprintf(needle, sizeof needle, "\n%s=", key);
    at = strstr(text, needle);
    if (!at) return NULL;
    at += strlen(needle);
    end = strchr(at, '\n');
    length = end ? (size_t)(end - at) : strlen(at);
    if (length >= size) length = size - 1;
    memcpy(out, at, length);
    out[length] = 0;
    return out;
}

static void note(const char *key) {
    const char *path = getenv("GOODPUT_STUB_LOG");
    FILE *file;
    if (!path || !(file = fopen(path, "a"))) return;
    fprintf(file, "%s\n", key);
    fclose(file);
}

/* The return code of a call: <key>.ret, else <prefix>.all.ret, else 0. */
static int code(const char *key) {
    char name[160], value[64];
    note(key);
    snprintf(name, sizeof name, "%s.ret", key);
    if (!find(name, value, sizeof value)) return 0;
    while (!strcmp(value, "HANG")) sleep(3600);
    return atoi(value);
}

static unsigned long long number(const char *key, unsigned long long otherwise) {
    char value[64];
    return find(key, value, sizeof value) ? strtoull(value, NULL, 0) : otherwise;
}

static void string(const char *key, const char *otherwise, char *out, size_t size) {
    if (!find(key, out, size)) snprintf(out, size, "%s", otherwise);
}

typedef struct { int index; } Device;
static Device devices[64];
#define KEY(call) char key[96]; snprintf(key, sizeof key, "gpu.%d.%s", ((Device *)handle)->index, call)
#define CHECK(call) KEY(call); int ret = code(key); if (ret) return ret

int nvmlInitWithFlags(unsigned flags) { (void)flags; return code("init"); }
int nvmlInit_v2(void) { return code("init"); }
int nvmlShutdown(void) { return code("shutdown"); }
const char *nvmlErrorString(int ret) { static char out[32]; snprintf(out, sizeof out, "error %d", ret); return out; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    int ret = code("driver");
    if (ret) return ret;
    string("driver", "570.158.01", out, size);
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *out) {
    int ret = code("count");
    if (ret) return ret;
    *out = (unsigned)number("count", 8);
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    void *handle = &devices[index % 64];
    ((Device *)handle)->index = (int)(index % 64);
    CHECK("handle");
    *out = handle;
    return 0;
}
int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) {
    char otherwise[64];
    CHECK("uuid");
    snprintf(otherwise, sizeof otherwise, "GPU-00000000-0000-0000-0000-%012d", ((Device *)handle)->index);
    string(key, otherwise, out, size);
    return 0;
}
int nvmlDeviceGetName(void *handle, char *out, unsigned size) {
    CHECK("name");
    string(key, "NVIDIA H100 80GB HBM3", out, size);
    return 0;
}
int nvmlDeviceGetSerial(void *handle, char *out, unsigned size) {
    CHECK("serial");
    string(key, "1650000000001", out, size);
    return 0;
}
typedef struct { char legacy[16]; unsigned domain, bus, device, ids, subsystem; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(void *handle, Pci *out) {
    char otherwise[32];
    CHECK("pci");
    memset(out, 0, sizeof *out);
    snprintf(otherwise, sizeof otherwise, "00000000:%02X:00.0", 0x10 + ((Device *)handle)->index);
    string(key, otherwise, out->bus_id, sizeof out->bus_id);
    return 0;
}

static unsigned long long part(void *handle, const char *call, unsigned long long otherwise) {
    KEY(call);
    return number(key, otherwise);
}

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *out) {
    CHECK("memory");
    out[0] = part(handle, "memory.total", 85520809984ull);
    out[2] = part(handle, "memory.used", 60000000000ull);
    out[1] = out[0] - out[2];
    return 0;
}
#define ONE(name, call, otherwise) \
    int name(void *handle, unsigned *out) { CHECK(call); *out = (unsigned)number(key, otherwise); return 0; }
int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *out) {
    (void)type;
    CHECK("sm_clock");
    *out = (unsigned)number(key, 1755);
    return 0;
}
int nvmlDeviceGetMaxClockInfo(void *handle, int type, unsigned *out) {
    (void)type;
    CHECK("sm_clock_max");
    *out = (unsigned)number(key, 1980);
    return 0;
}
#ifndef NO_EVENT_REASONS
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *out) {
    CHECK("reasons");
    *out = number(key, 0);
    return 0;
}
#endif
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *out) {
    CHECK("old_reasons");
    *out = number(key, 4);
    return 0;
}
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *out) {
    (void)sensor;
    CHECK("temperature");
    *out = (unsigned)number(key, 61);
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *handle, int type, int counter, unsigned long long *out) {
    (void)counter;
    CHECK(type ? "ecc_uncorrected" : "ecc_corrected");
    *out = number(key, 0);
    return 0;
}
int nvmlDeviceGetEccMode(void *handle, unsigned *current, unsigned *pending) {
    CHECK("ecc_mode");
    *current = *pending = (unsigned)number(key, 1);
    return 0;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    CHECK("mig_mode");
    *current = *pending = (unsigned)number(key, 0);
    return 0;
}
ONE(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen", 5)
ONE(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max", 5)
ONE(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
ONE(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 16)
ONE(nvmlDeviceGetPcieReplayCounter, "pcie_replays", 0)
ONE(nvmlDeviceGetPowerUsage, "power", 650000)
ONE(nvmlDeviceGetEnforcedPowerLimit, "power_limit", 700000)
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *out) {
    CHECK("utilization");
    out[0] = (unsigned)part(handle, "utilization.gpu", 97);
    out[1] = (unsigned)part(handle, "utilization.memory", 41);
    return 0;
}
int nvmlDeviceGetRemappedRows(void *handle, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed) {
    CHECK("remapped_rows");
    *c = (unsigned)part(handle, "remap.correctable", 0);
    *u = (unsigned)part(handle, "remap.uncorrectable", 0);
    *pending = (unsigned)part(handle, "remap.pending", 0);
    *failed = (unsigned)part(handle, "remap.failed", 0);
    return 0;
}
int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *out) {
    char call[32];
    CHECK("nvlink");
    if (link >= part(handle, "nvlink.links", 18)) return 2;
    snprintf(call, sizeof call, "nvlink.%u", link);
    *out = (unsigned)part(handle, call, 1);
    return 0;
}
typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    int type, ret;
    union { unsigned long long ull; } value;
} FieldValue;
int nvmlDeviceGetFieldValues(void *handle, int count, FieldValue *values) {
    char call[32];
    CHECK("fields");
    for (int i = 0; i < count; i++) {
        snprintf(call, sizeof call, "field.%u.ret", values[i].id);
        values[i].ret = (int)part(handle, call, 0);
        snprintf(call, sizeof call, "field.%u", values[i].id);
        values[i].type = 3;
        values[i].value.ull = part(handle, call, 0);
        if (values[i].ret) values[i].value.ull = 0;
    }
    return 0;
}
typedef struct { unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state; unsigned mask; } Fabric;
int nvmlDeviceGetGpuFabricInfoV(void *handle, Fabric *out) {
    CHECK("fabric");
    memset(out->cluster, (int)part(handle, "fabric.cluster", 0), 16);
    out->status = 0;
    out->clique = (unsigned)part(handle, "fabric.clique", 0);
    out->state = (unsigned char)part(handle, "fabric.state", 0);
    out->mask = 0;
    return 0;
}

/* MIG: gpu.<i>.mig.count places; gpu.<i>.mig.<n>.instance and .slices of those that are taken. */
typedef struct { int index, place; } Mig;
static Mig migs[64 * 8];
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *out) {
    CHECK("mig");
    *out = (unsigned)part(handle, "mig.count", 0);
    return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned place, void **out) {
    char call[32];
    Mig *mig = &migs[((Device *)handle)->index * 8 + place % 8];
    snprintf(call, sizeof call, "mig.%u.slices", place);
    if (!part(handle, call, 0)) return 6; /* not found */
    mig->index = ((Device *)handle)->index;
    mig->place = (int)place;
    *out = mig;
    return 0;
}
static unsigned long long of_mig(Mig *mig, const char *what) {
    char call[32];
    snprintf(call, sizeof call, "mig.%d.%s", mig->place, what);
    return part(&devices[mig->index], call, 0);
}
int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *out) { *out = (unsigned)of_mig(handle, "instance"); return 0; }
int nvmlDeviceGetAttributes_v2(void *handle, unsigned *out) { out[6] = (unsigned)of_mig(handle, "slices"); return 0; }
