/* A stand-in for libnvidia-ml.so.1 that the real pynvml loads, so that a machine without a GPU can
 * stand for a node with eight, or with a broken one.
 *
 *     gcc -shared -fPIC -O1 -o libnvidia-ml.so.1 -Wl,-soname,libnvidia-ml.so.1 fakenvml.c
 *
 * Its state is read at nvmlInit from $FAKENVML_CONF, or /etc/fakenvml.conf where that is not set;
 * without a file it is eight healthy H100. One `key = value` a line, `#` starts a comment. The keys
 * and their defaults are the get() calls below. `3.ecc = 0` holds for GPU 3 only.
 *
 *     driver = 550.54.15        3.ecc = 0,0           current, pending
 *     count = 8                 3.remapped = 0,1,1,0  correctable, uncorrectable, pending, failure
 *     return.nvmlInit = 18      3.lost = 1            every call on GPU 3 says GPU_IS_LOST
 *
 * `return.FUNCTION` (or `3.return.FUNCTION`) makes a function return that nvmlReturn_t, or `hang`,
 * or `crash`. A key set to `none` makes its function return NVML_ERROR_NOT_SUPPORTED.
 */
#include <ctype.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7, LOST = 15 };
enum { ROWS = 512, WIDTH = 256, MIG_BASE = 4096 };

static struct { char key[WIDTH], value[WIDTH]; } rows[ROWS];
static int row_count, ready;

static char *trim(char *text) {
    while (isspace((unsigned char)*text)) text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) *--end = 0;
    return text;
}

static void load(void) {
    const char *path = getenv("FAKENVML_CONF");
    FILE *file = fopen(path ? path : "/etc/fakenvml.conf", "r");
    char line[2 * WIDTH];
    row_count = 0;
    ready = 1;
    while (file && row_count < ROWS && fgets(line, sizeof line, file)) {
        char *comment = strchr(line, '#'), *equals;
        if (comment) *comment = 0;
        if (!(equals = strchr(line, '='))) continue;
        *equals = 0;
        snprintf(rows[row_count].key, WIDTH, "%s", trim(line));
        snprintf(rows[row_count++].value, WIDTH, "%s", trim(equals + 1));
    }
    if (file) fclose(file);
}

/* The value of `key` for one GPU (-1: the whole machine); a later line wins. */
static const char *get(int gpu, const char *key, const char *otherwise) {
    char own[WIDTH];
    const char *found = otherwise;
    int is_own = 0;
    if (!ready) load();
    snprintf(own, sizeof own, "%d.%s", gpu, key);
    for (int i = 0; i < row_count; i++) {
        if (gpu >= 0 && !strcmp(rows[i].key, own)) found = rows[i].value, is_own = 1;
        else if (!is_own && !strcmp(rows[i].key, key)) found = rows[i].value;
    }
    return found;
}

static int act(const char *told) {
    if (!strcmp(told, "hang")) for (;;) sleep(1);
    if (!strcmp(told, "crash")) signal(SIGSEGV, SIG_DFL), raise(SIGSEGV);
    return atoi(told);
}

static int enter(int gpu, const char *function) {
    char key[WIDTH];
    snprintf(key, sizeof key, "return.%s", function);
    const char *told = get(gpu, key, "");
    if (*told) return act(told);
    return gpu >= 0 && atoi(get(gpu, "lost", "0")) ? LOST : OK;
}

static int text(const char *value, char *into, unsigned size) {
    if (!strcmp(value, "none")) return NOT_SUPPORTED;
    if (strlen(value) + 1 > size) return TOO_SMALL;
    strcpy(into, value);
    return OK;
}

static int numbers(const char *value, int wanted, unsigned *into) {
    if (!strcmp(value, "none")) return NOT_SUPPORTED;
    for (int i = 0; i < wanted; i++) {
        into[i] = (unsigned)strtoul(value, (char **)&value, 10);
        if (*value == ',') value++;
    }
    return OK;
}

/* A handle is the GPU's number + 1; that of a MIG instance is MIG_BASE + 64 * GPU + instance. */
static int gpu_of(void *handle) {
    long number = (long)handle;
    return number >= MIG_BASE ? (int)((number - MIG_BASE) / 64) : (int)number - 1;
}

#define SYSTEM(function) do { int told = enter(-1, #function); if (told) return told; } while (0)
#define DEVICE(function) int gpu = gpu_of(handle), told = enter(gpu, #function); if (told) return told
#define TEXT(function, key, otherwise)                                \
    int function(void *handle, char *into, unsigned size) {           \
        DEVICE(function);                                             \
        return text(get(gpu, key, otherwise), into, size);            \
    }
#define NUMBER(function, key, otherwise)                              \
    int function(void *handle, unsigned *into) {                      \
        DEVICE(function);                                             \
        return numbers(get(gpu, key, otherwise), 1, into);            \
    }
#define NUMBER2(function, key, otherwise)                             \
    int function(void *handle, unsigned which, unsigned *into) {      \
        (void)which;                                                  \
        DEVICE(function);                                             \
        return numbers(get(gpu, key, otherwise), 1, into);            \
    }
#define PAIR(function, key, otherwise)                                \
    int function(void *handle, unsigned *current, unsigned *pending) {\
        DEVICE(function);                                             \
        unsigned pair[2];                                             \
        told = numbers(get(gpu, key, otherwise), 2, pair);            \
        if (!told) *current = pair[0], *pending = pair[1];            \
        return told;                                                  \
    }

int nvmlInit_v2(void) { load(); SYSTEM(nvmlInit); return OK; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code ? "said by the stand-in" : "Success"; }

int nvmlSystemGetDriverVersion(char *into, unsigned size) {
    SYSTEM(nvmlSystemGetDriverVersion);
    return text(get(-1, "driver", "550.54.15"), into, size);
}
int nvmlSystemGetNVMLVersion(char *into, unsigned size) {
    SYSTEM(nvmlSystemGetNVMLVersion);
    char version[WIDTH];
    snprintf(version, sizeof version, "12.%.200s", get(-1, "driver", "550.54.15"));
    return text(get(-1, "nvml", version), into, size);
}
int nvmlSystemGetCudaDriverVersion(int *into) {
    SYSTEM(nvmlSystemGetCudaDriverVersion);
    return numbers(get(-1, "cuda", "12040"), 1, (unsigned *)into);
}
int nvmlSystemGetCudaDriverVersion_v2(int *into) { return nvmlSystemGetCudaDriverVersion(into); }
int nvmlDeviceGetCount_v2(unsigned *into) {
    SYSTEM(nvmlDeviceGetCount);
    return numbers(get(-1, "count", "8"), 1, into);
}
struct confidential { unsigned environment, feature, devtools; };
int nvmlSystemGetConfComputeState(struct confidential *into) {
    SYSTEM(nvmlSystemGetConfComputeState);
    return numbers(get(-1, "confidential", "0,0,0"), 3, (unsigned *)into);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **into) {
    if ((int)index >= atoi(get(-1, "count", "8"))) return INVALID;
    int told = enter((int)index, "nvmlDeviceGetHandleByIndex");
    *into = (void *)(long)(index + 1);
    return told;
}

int nvmlDeviceGetName(void *handle, char *into, unsigned size) {
    DEVICE(nvmlDeviceGetName);
    char name[WIDTH];
    const char *profile = get(gpu, "mig_profile", "1g.10gb");
    const char *product = get(gpu, "name", "NVIDIA H100 80GB HBM3");
    if ((long)handle < MIG_BASE) return text(product, into, size);
    snprintf(name, sizeof name, "%.120s MIG %.60s", product, profile);
    return text(name, into, size);
}
int nvmlDeviceGetUUID(void *handle, char *into, unsigned size) {
    DEVICE(nvmlDeviceGetUUID);
    char uuid[WIDTH];
    const char *kind = (long)handle < MIG_BASE ? "GPU" : "MIG";
    int number = (long)handle < MIG_BASE ? gpu : (int)((long)handle - MIG_BASE);
    snprintf(uuid, sizeof uuid, "%s-%.60s-%012d", kind, get(gpu, "uuid", "5eed0000-0000-4000-8000"), number);
    return text(uuid, into, size);
}
TEXT(nvmlDeviceGetSerial, "serial", "1650000000000")
TEXT(nvmlDeviceGetVbiosVersion, "vbios", "96.00.74.00.01")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom", "G520.0200.00.05")
int nvmlDeviceGetGspFirmwareVersion(void *handle, char *into) {
    DEVICE(nvmlDeviceGetGspFirmwareVersion);
    return text(get(gpu, "gsp", get(-1, "driver", "550.54.15")), into, 80);
}
int nvmlDeviceGetVirtualizationMode(void *handle, unsigned *into) {
    DEVICE(nvmlDeviceGetVirtualizationMode);
    return numbers(get(gpu, "virtualization", "0"), 1, into);
}
struct addressing { unsigned version, value; };
int nvmlDeviceGetAddressingMode(void *handle, struct addressing *into) {
    DEVICE(nvmlDeviceGetAddressingMode);
    return numbers(get(gpu, "addressing", "0"), 1, &into->value);
}
int nvmlDeviceGetDriverModel_v2(void *handle, unsigned *current, unsigned *pending) {
    DEVICE(nvmlDeviceGetDriverModel);
    unsigned pair[2]; /* a Windows driver alone has one */
    told = numbers(get(gpu, "driver_model", "none"), 2, pair);
    if (!told) *current = pair[0], *pending = pair[1];
    return told;
}
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    DEVICE(nvmlDeviceGetCudaComputeCapability);
    return sscanf(get(gpu, "compute_capability", "9.0"), "%d.%d", major, minor) == 2 ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *into) {
    DEVICE(nvmlDeviceGetMemoryInfo);
    into[0] = strtoull(get(gpu, "memory_mib", "81559"), 0, 10) << 20;
    into[2] = strtoull(get(gpu, "memory_used_mib", "1"), 0, 10) << 20;
    into[1] = into[0] - into[2];
    return OK;
}
struct memory { unsigned version; unsigned long long total, reserved, unused, used; };
int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory *into) {
    DEVICE(nvmlDeviceGetMemoryInfo_v2);
    const char *reserved = get(gpu, "memory_reserved_mib", "1");
    if (!strcmp(reserved, "none")) return NOT_SUPPORTED;
    into->total = strtoull(get(gpu, "memory_mib", "81559"), 0, 10) << 20;
    into->reserved = strtoull(reserved, 0, 10) << 20;
    into->used = (strtoull(get(gpu, "memory_used_mib", "1"), 0, 10) << 20) - into->reserved;
    into->unused = into->total - into->used - into->reserved;
    return OK;
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *into) {
    DEVICE(nvmlDeviceGetPciInfo);
    memset(into, 0, sizeof *into);
    into->bus = 0x10u * (unsigned)(gpu + 1);
    into->id = 0x233010de;
    snprintf(into->bus_id, sizeof into->bus_id, "00000000:%02X:00.0", into->bus);
    return OK;
}
PAIR(nvmlDeviceGetEccMode, "ecc", "1,1")
PAIR(nvmlDeviceGetMigMode, "mig", "0,0")
PAIR(nvmlDeviceGetGspFirmwareMode, "gsp_mode", "1,1")
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power_bounds_mw", "200000,700000")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence", "1")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode", "0")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_mw", "700000")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_mw", "700000")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max", "5")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation", "5")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", "16")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", "16")

/* Clock kinds: 0 graphics, 1 SM, 2 memory, 3 video; the keys list them in this order. */
static int clock_of(int gpu, const char *key, const char *otherwise, unsigned kind, unsigned *into) {
    unsigned all[4];
    int told = numbers(get(gpu, key, otherwise), 4, all);
    if (!told) *into = all[kind & 3];
    return told;
}
#define CLOCK(function, key, otherwise)                               \
    int function(void *handle, unsigned kind, unsigned *into) {       \
        DEVICE(function);                                             \
        return clock_of(gpu, key, otherwise, kind, into);             \
    }
CLOCK(nvmlDeviceGetMaxClockInfo, "clocks_max_mhz", "1980,1980,2619,1545")
CLOCK(nvmlDeviceGetApplicationsClock, "clocks_applications_mhz", "1980,1980,2619,1545")
CLOCK(nvmlDeviceGetClockInfo, "clocks_mhz", "345,345,2619,765")
int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *into) {
    (void)sensor;
    DEVICE(nvmlDeviceGetTemperature);
    return numbers(get(gpu, "temperature_c", "31"), 1, into);
}
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *into) {
    DEVICE(nvmlDeviceGetCurrentClocksEventReasons);
    *into = strtoull(get(gpu, "throttle_reasons", "1"), 0, 0);
    return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *into) {
    return nvmlDeviceGetCurrentClocksEventReasons(handle, into);
}
int nvmlDeviceGetTotalEccErrors(void *handle, unsigned kind, unsigned counter, unsigned long long *into) {
    DEVICE(nvmlDeviceGetTotalEccErrors);
    unsigned pair[2];
    told = numbers(get(gpu, counter ? "ecc_errors_aggregate" : "ecc_errors", "0,0"), 2, pair);
    *into = pair[kind & 1];
    return told;
}
int nvmlDeviceGetRemappedRows(void *handle, unsigned *correctable, unsigned *uncorrectable,
                              unsigned *pending, unsigned *failure) {
    DEVICE(nvmlDeviceGetRemappedRows);
    unsigned all[4];
    told = numbers(get(gpu, "remapped", "0,0,0,0"), 4, all);
    if (!told) *correctable = all[0], *uncorrectable = all[1], *pending = all[2], *failure = all[3];
    return told;
}
struct sram { unsigned version; unsigned long long counts[11]; unsigned exceeded; };
int nvmlDeviceGetSramEccErrorStatus(void *handle, struct sram *into) {
    DEVICE(nvmlDeviceGetSramEccErrorStatus);
    memset(into->counts, 0, sizeof into->counts);
    return numbers(get(gpu, "sram_threshold_exceeded", "0"), 1, &into->exceeded);
}
/* Before Ampere: pages retired for single and for double bit errors, and whether more wait. */
int nvmlDeviceGetRetiredPages(void *handle, unsigned cause, unsigned *count, unsigned long long *into) {
    DEVICE(nvmlDeviceGetRetiredPages);
    unsigned pair[2];
    told = numbers(get(gpu, "retired", "none"), 2, pair);
    if (told) return told;
    if (pair[cause & 1] > *count) { *count = pair[cause & 1]; return TOO_SMALL; }
    *count = pair[cause & 1];
    for (unsigned i = 0; i < *count; i++) into[i] = 4096ull * i;
    return OK;
}
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending", "none")

int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *into) {
    DEVICE(nvmlDeviceGetNvLinkState);
    unsigned all[2]; /* links, and how many of them are up */
    told = numbers(get(gpu, "nvlinks", "18,18"), 2, all);
    if (told) return told;
    if (link >= all[0]) return INVALID;
    if (link < (unsigned)atoi(get(gpu, "nvlinks_unwired", "0"))) return NOT_SUPPORTED; /* of those, the first */
    *into = link < all[1];
    return OK;
}
NUMBER2(nvmlDeviceGetNvLinkVersion, "nvlink_version", "6")
struct field { unsigned id, scope; int64_t at, took; unsigned type; int status; union { unsigned whole; unsigned long long all; } value; };
int nvmlDeviceGetFieldValues(void *handle, int count, struct field *into) {
    DEVICE(nvmlDeviceGetFieldValues);
    for (int i = 0; i < count; i++) {
        unsigned number = 0;
        const char *value = "none";
        if (into[i].id == 90) value = get(gpu, "nvlink_mbps", "26562");
        if (into[i].id == 91) value = get(gpu, "nvlinks", "18,18"); /* the first of the pair */
        if (into[i].id == 226) value = get(gpu, "reset_status", "none");
        if (into[i].id == 227) value = get(gpu, "drain_status", "none");
        if (into[i].id == 230) value = get(gpu, "recovery_action", "0");
        into[i].status = numbers(value, 1, &number);
        into[i].type = 1; /* four bytes of the value are written, the others stay as they were */
        into[i].value.all = ~0ull;
        into[i].value.whole = number;
    }
    return OK;
}
struct fabric { unsigned char cluster[16]; int status; unsigned clique; unsigned char state; };
static int fabric(int gpu, struct fabric *into) {
    unsigned all[2]; /* state, status */
    int told = numbers(get(gpu, "fabric", "3,0"), 2, all);
    if (told) return told;
    memset(into->cluster, 0xab, sizeof into->cluster);
    into->state = (unsigned char)all[0];
    into->status = (int)all[1];
    into->clique = 0;
    return OK;
}
int nvmlDeviceGetGpuFabricInfo(void *handle, struct fabric *into) {
    DEVICE(nvmlDeviceGetGpuFabricInfo);
    return fabric(gpu, into);
}
struct fabric_v2 { unsigned version; struct fabric info; unsigned health; };
int nvmlDeviceGetGpuFabricInfoV(void *handle, struct fabric_v2 *into) {
    DEVICE(nvmlDeviceGetGpuFabricInfoV);
    into->health = (unsigned)strtoul(get(gpu, "fabric_health", "0"), 0, 0);
    return fabric(gpu, &into->info);
}

NUMBER(nvmlDeviceGetMaxMigDeviceCount, "mig_max", "7")
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **into) {
    DEVICE(nvmlDeviceGetMigDeviceHandleByIndex);
    if ((int)index >= atoi(get(gpu, "mig_instances", "0"))) return 6; /* NOT_FOUND */
    *into = (void *)(long)(MIG_BASE + 64 * gpu + (int)index);
    return OK;
}
/* `process = pid, MiB` of each kind, one process; pid 0: none runs. */
struct process { unsigned pid; unsigned long long memory; unsigned instance, compute_instance; };
static int processes(int gpu, const char *key, unsigned *count, struct process *into) {
    unsigned pair[2];
    int told = numbers(get(gpu, key, "0,0"), 2, pair);
    if (told || !pair[0]) { *count = 0; return told; }
    if (!into || *count < 1) { *count = 1; return TOO_SMALL; }
    *count = 1;
    into[0] = (struct process){pair[0], (unsigned long long)pair[1] << 20, ~0u, ~0u};
    return OK;
}
#define PROCESSES(function, key)                                               \
    int function##_v3(void *handle, unsigned *count, struct process *into) {  \
        DEVICE(function);                                                      \
        return processes(gpu, key, count, into);                               \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, "process")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, "graphics_process")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, "mps_process")
