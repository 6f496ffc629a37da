/**
 * Loads the Rust core. The only module that touches the `.node` file.
 *
 * Uses the file of the installed package for this platform and version (`platform.ts`), else the one that a clone built
 * in `native/`. Nothing else is tried or downloaded: failing is better than silently running another binary.
 */

import { createRequire } from 'node:module'
import { join } from 'node:path'
import type { NativeModule } from './bridge.js'
import { ServerError } from './errors.js'
import { builtModules, clone, findPlatformPackage, ownVersion } from './locate.js'
import { nativeFileNames, noModuleText } from './platform.js'

let loaded: NativeModule | null = null
let note: string | null = null
let loadedFrom = ''

/**
 * The native module, loaded once per process.
 *
 * @throws {ServerError} `UNAVAILABLE` when there is no binary for this platform or it cannot be opened.
 */
export function loadNative(): NativeModule {
  if (loaded !== null) return loaded
  // While loading, ONNX Runtime opens a telemetry database in the home directory and creates a device id, before its
  // environment could be told not to. The library reads this variable once.
  process.env['ORT_DISABLE_TELEMETRY'] ??= '1'
  const require = createRequire(import.meta.url)
  const tried: string[] = []
  const open = (path: string): NativeModule | null => {
    try {
      loaded = require(path) as NativeModule
      loadedFrom = path
      return loaded
    } catch (error) {
      tried.push(`${path}: ${error instanceof Error ? error.message : String(error)}`)
      return null
    }
  }

  const installed = findPlatformPackage()
  const from = clone()
  if ('missing' in installed) {
    // In a clone the package is not expected.
    if (from === null) tried.push(installed.missing)
  } else {
    const [file = ''] = nativeFileNames(process.platform, process.arch)
    const module = open(join(installed.directory, file))
    if (module !== null) {
      const [built] = builtModules().present
      if (built !== undefined) note = `the native core comes from the package ${installed.title}; ${built} is not used`
      return module
    }
  }
  const { present, looked } = builtModules()
  if (present.length === 0)
    tried.push(from === null ? `there is none from ${looked.join(', ')}` : 'this clone is not built')
  for (const path of present) {
    // The musl binary on a glibc system (or the reverse) fails here; the next one may fit.
    const module = open(path)
    if (module !== null) return module
  }
  const host = { platform: process.platform, arch: process.arch, glibc: glibcVersion(), clone: from }
  throw new ServerError('UNAVAILABLE', noModuleText(host, ownVersion(), tried))
}

/** The native module if it is loaded. */
export const loadedModule = (): NativeModule | null => loaded

/** Path of the native module, which worker threads load too. */
export function nativePath(): string {
  loadNative()
  return loadedFrom
}

/** Warning that the module of a clone is not used; null when there is nothing to warn of. */
export function nativeNote(): string | null {
  return note
}

/** Version of this process's glibc, null without one. Takes milliseconds, so it is only used after a failure. */
function glibcVersion(): string | null {
  // Without this, the report resolves the names of all network peers.
  if (process.report !== undefined) Object.assign(process.report, { excludeNetwork: true })
  const report: unknown = process.report?.getReport()
  return (report as { header?: { glibcVersionRuntime?: string } } | undefined)?.header?.glibcVersionRuntime ?? null
}
