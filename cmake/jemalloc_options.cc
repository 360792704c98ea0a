// Options of jemalloc, which reads them from this variable of the program (jemalloc(3), "TUNING"). Searches touch much
// memory for a short time: in pages of 2 MiB a virtual machine takes a seventh of the page faults. One arena: further ones are
// made by model/base/parallel.cc, where a failure is noticed. MALLOC_CONF wins over it.
extern "C" {
extern const char* malloc_conf;
[[gnu::visibility("default"), gnu::used]] const char* malloc_conf =
    "thp:always,metadata_thp:always,narenas:1";
}
