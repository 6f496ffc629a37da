// The seven symbols of glibc 2.38 and libstdc++ 13 that perf_analyzer's binary needs, for systems with older ones.
// Preloaded only into perf_analyzer, by perf_analyzer.py; never part of the server.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ios>
#include <new>

static std::ios_base::Init streams;

extern "C" {
// C23 adds binary literals to these; nothing perf_analyzer parses uses them.
unsigned long __isoc23_strtoul(const char* s, char** end, int base) { return strtoul(s, end, base); }
unsigned long long __isoc23_strtoull(const char* s, char** end, int base) { return strtoull(s, end, base); }
long __isoc23_strtol(const char* s, char** end, int base) { return strtol(s, end, base); }
long long __isoc23_strtoll(const char* s, char** end, int base) { return strtoll(s, end, base); }
int __isoc23_sscanf(const char* s, const char* format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsscanf(s, format, args);
  va_end(args);
  return n;
}

// Never called: the reference alone makes sure of a library that initialises the streams by itself. An older one does not,
// so `streams` above does it, before the program's own constructors run.
void _ZSt21ios_base_library_initv() {}

// std::string::_M_replace_cold: put `s` in place of `gone` characters at `p` and keep `rest` behind it. `s` may lie inside
// the string itself, so it is set aside first. The caller has made sure that it all fits.
void _ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE15_M_replace_coldEPcmPKcmm(
    void*, char* p, size_t gone, const char* s, size_t count, size_t rest) {
  char* aside = static_cast<char*>(::operator new(count + 1));
  memcpy(aside, s, count);
  if (rest != 0 && gone != count) memmove(p + count, p + gone, rest);
  memcpy(p, aside, count);
  ::operator delete(aside);
}
}
