/**
 * Loads the Rust core. The only module that touches the `.node` file.
 *
 * The file is looked for in `native/` at the root of the package, under the name the napi build gives it:
 * `nereid.<platform>-<arch>[-<libc>].node`. Both `dist/native` and `src/native` are two levels below the root, so the
 * same relative path serves the built package and the tests. Nothing is downloaded, and nothing else is tried:
 * a server that quietly runs some other binary is worse than one that says what is missing.
 */

import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { createBridge, type RawModule } from './bridge.js'
import type { Core, CoreOptions, ControlCall, LogRecord } from './contract.js'
import { ServerError } from './errors.js'

export * from './contract.js'
export * from './errors.js'

let loaded: RawModule | null = null

/** File names that fit this platform, best first. glibc before musl: on a system with both, Node itself is glibc. */
export function nativeFileNames(platform: string, arch: string): string[] {
  if (platform === 'linux') return [`nereid.linux-${arch}-gnu.node`, `nereid.linux-${arch}-musl.node`]
  return [`nereid.${platform}-${arch}.node`]
}

/**
 * The native module, loaded once per process.
 *
 * @throws {ServerError} `UNAVAILABLE` when no binary for this platform is there or it can not be opened.
 */
export function loadNative(): RawModule {
  if (loaded !== null) return loaded
  const directory = fileURLToPath(new URL('../../native/', import.meta.url))
  const candidates = nativeFileNames(process.platform, process.arch).map((name) => directory + name)
  const present = candidates.filter((path) => existsSync(path))
  if (present.length === 0) {
    throw new ServerError(
      'UNAVAILABLE',
      `the native core is not built for ${process.platform}-${process.arch}: none of ${candidates.join(', ')} exists`,
    )
  }
  const require = createRequire(import.meta.url)
  const failures: string[] = []
  for (const path of present) {
    try {
      loaded = require(path) as RawModule
      return loaded
    } catch (error) {
      // The musl binary on a glibc system (or the reverse) fails here; the next candidate may fit.
      failures.push(`${path}: ${error instanceof Error ? error.message : String(error)}`)
    }
  }
  throw new ServerError('UNAVAILABLE', `the native core can not be loaded: ${failures.join('; ')}`)
}

/**
 * Starts loading ONNX Runtime on a thread of its own, before there is a core. Saves time and decides nothing: whatever goes
 * wrong is told to the first model that needs the library, or by `createCore`.
 */
export function preloadOnnxRuntime(library: string, settings: { key: string; value: string }[]): void {
  let native: RawModule
  try {
    native = loadNative()
  } catch {
    return
  }
  native.preloadOnnxruntime(library, settings)
  // An exit in the middle of the loading might crash in the library, and the crash would replace the exit code.
  process.once('exit', () => native.awaitPreload())
}

/**
 * Ends the process while the core may be loading or running a model. `process.exit` would destroy ONNX Runtime's static objects
 * under its threads, which ends in a crash now and then instead of in `code`. No exit listener runs.
 */
export function exitNow(code: number): never {
  loaded?.exitNow(code)
  process.exit(code)
}

/** Creates a core. The callbacks run on the JavaScript thread, never inside a call into the core. */
export function createCore(
  options: CoreOptions,
  onControl: (call: ControlCall) => void,
  onLog: (record: LogRecord) => void,
  onTraces: () => void = () => {},
): Core {
  return createBridge(loadNative(), options, onControl, onLog, onTraces)
}
