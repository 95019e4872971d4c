// Stands in for MACA's runtime library: every argument is checked, and launches run the simulator's code.
//
// A module image is the text "STANDIN" and, on the next line, the path of a library the simulator built. Calls are
// written to the file named by STANDIN_LOG, one a line.
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <abi.h>

#include <map>
#include <set>
#include <string>

namespace {

enum { success = 0, invalid_value = 1, invalid_device = 101, invalid_image = 200, invalid_handle = 400, not_found = 500 };

struct Function {
  void *library;
  std::string name;
};

std::set<void *> modules;
std::map<void *, Function> functions;
thread_local int device = -1;
// What the last call left behind, to show that nobody judges a launch by it.
int last_error = 719;

void log(const char *format, ...) {
  const char *path = getenv("STANDIN_LOG");
  FILE *file = path ? fopen(path, "a") : nullptr;
  if (!file) return;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(file, format, arguments);
  va_end(arguments);
  fputc('\n', file);
  fclose(file);
}

} // namespace

extern "C" {

int mcSetDevice(int index) {
  log("mcSetDevice %d", index);
  if (index < 0 || index > 1) return invalid_device;
  device = index;
  return success;
}

int mcModuleLoadData(void **module, const void *image) {
  if (!module || !image || device < 0) return invalid_value;
  if (strncmp((const char *)image, "STANDIN\n", 8)) return invalid_image;
  const std::string path((const char *)image + 8);
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return invalid_image;
  log("mcModuleLoadData device %d", device);
  modules.insert(library);
  *module = library;
  return success;
}

int mcModuleGetFunction(void **function, void *module, const char *name) {
  if (!function || !name) return invalid_value;
  if (!modules.count(module)) return invalid_handle;
  void *entry = dlsym(module, (std::string("tilehal_sim_entry_") + name).c_str());
  if (!entry) return not_found;
  functions[entry] = Function{module, name};
  log("mcModuleGetFunction %s", name);
  *function = entry;
  return success;
}

int mcModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                         unsigned shared, void *stream, void **parameters, void **extra) {
  const auto found = functions.find(function);
  if (found == functions.end()) return invalid_handle;
  if (extra || !parameters || !gx || !gy || !gz || !bx || !by || !bz) return invalid_value;
  if (bx * by * bz > 1024 || bx * by * bz % 64 || shared > 65536) return invalid_value;
  log("mcModuleLaunchKernel %s grid %u %u %u block %u %u %u shared %u stream %p", found->second.name.c_str(), gx, gy, gz,
      bx, by, bz, shared, stream);
  using Launch = int (*)(const tilehal_sim::LaunchRequest *, tilehal_sim::Fault *);
  Launch launch = (Launch)dlsym(found->second.library, "tilehal_sim_launch");
  if (!launch) return not_found;
  tilehal_sim::LaunchRequest request = {};
  request.entry = (void (*)(void **))function;
  request.arguments = parameters;
  const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  memcpy(request.grid, grid, sizeof(grid));
  memcpy(request.block, block, sizeof(block));
  request.wave_lanes = 64;
  request.workers = 1;
  request.dynamic_shared_bytes = shared;
  tilehal_sim::Fault fault = {};
  return launch(&request, &fault) ? 719 : success;
}

int mcStreamSynchronize(void *stream) {
  log("mcStreamSynchronize stream %p", stream);
  return stream == (void *)0xbad ? 719 : success;
}

int mcGetLastError(void) { return last_error; }

const char *mcGetErrorName(int code) {
  switch (code) {
  case success: return "mcSuccess";
  case invalid_value: return "mcErrorInvalidValue";
  case invalid_device: return "mcErrorInvalidDevice";
  case invalid_image: return "mcErrorInvalidImage";
  case invalid_handle: return "mcErrorInvalidResourceHandle";
  case not_found: return "mcErrorNotFound";
  case 719: return "mcErrorLaunchFailure";
  default: return nullptr;
  }
}

const char *mcGetErrorString(int code) { return code == invalid_value ? "invalid argument" : "as its name says"; }

// ------------------------------------------------------------------------------------------------------- mcrtc

struct Program {
  std::string source, log;
};

int mcrtcVersion(int *major, int *minor) {
  *major = 3;
  *minor = 5;
  return 0;
}

int mcrtcCreateProgram(Program **program, const char *source, const char *name, int headers, const char *const *,
                       const char *const *) {
  if (!program || !source || !name || headers) return 1;
  *program = new Program{source, ""};
  return 0;
}

int mcrtcCompileProgram(Program *program, int count, const char *const *options) {
  bool architecture = false;
  for (int i = 0; i < count; ++i) {
    architecture |= !strncmp(options[i], "-arch=xcore", 11);
    if (!strcmp(options[i], "-refuse")) {
      program->log = "kernel.maca(1): error: refused as asked";
      return 6;
    }
  }
  return architecture ? 0 : 5;
}

int mcrtcGetProgramLogSize(Program *program, size_t *size) {
  *size = program->log.size() + 1;
  return 0;
}

int mcrtcGetProgramLog(Program *program, char *text) {
  strcpy(text, program->log.c_str());
  return 0;
}

int mcrtcGetBitcodeSize(Program *program, size_t *size) {
  *size = program->source.size();
  return 0;
}

int mcrtcGetBitcode(Program *program, char *bitcode) {
  memcpy(bitcode, program->source.data(), program->source.size());
  return 0;
}

int mcrtcDestroyProgram(Program **program) {
  delete *program;
  *program = nullptr;
  return 0;
}

const char *mcrtcGetErrorString(int code) { return code == 6 ? "MCRTC_ERROR_COMPILATION" : "MCRTC_ERROR"; }

} // extern "C"
