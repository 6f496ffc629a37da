/**
 * Loads the Rust core. The only module that touches the `.node` file.
 *
 * The file is that of the installed package for this platform and of this version (`platform.ts`); without one, that which a clone
 * built in `native/`. Nothing is downloaded, and nothing else is tried: a server that quietly runs some other binary is worse than one
 * that says what is missing.
 */

import { createRequire } from 'node:module'
import { join } from 'node:path'
import { createBridge, now, type CoreArguments, type NativeModule } from './bridge.js'
import type { Core, DeviceList, GivenSocket, MachineDevices, ProviderReport, Route, Setting } from './contract.js'
import { ServerError } from './errors.js'
import { builtModules, clone, findPlatformPackage, ownVersion } from './locate.js'
import { nativeFileNames, noModuleText } from './platform.js'

export * from './contract.js'
export * from './errors.js'

let loaded: NativeModule | null = null
let note: string | null = null

/**
 * The native module, loaded once per process.
 *
 * @throws {ServerError} `UNAVAILABLE` when no binary for this platform is there or it can not be opened.
 */
export function loadNative(): NativeModule {
  if (loaded !== null) return loaded
  // When ONNX Runtime is loaded it opens a database of telemetry in the home directory, makes an id of the device, and has
  // what it takes to send both; that its environment is told to keep none comes after that. Read once, by the library.
  process.env['ORT_DISABLE_TELEMETRY'] ??= '1'
  const require = createRequire(import.meta.url)
  const tried: string[] = []
  const open = (path: string): NativeModule | null => {
    try {
      return (loaded = require(path) as NativeModule)
    } catch (error) {
      tried.push(`${path}: ${error instanceof Error ? error.message : String(error)}`)
      return null
    }
  }

  const installed = findPlatformPackage()
  const from = clone()
  if ('missing' in installed) {
    // Nobody who works in a clone misses it.
    if (from === null) tried.push(installed.missing)
  } else {
    const [file = ''] = nativeFileNames(process.platform, process.arch)
    const module = open(join(installed.directory, file))
    if (module !== null) {
      const [built] = builtModules().present
      if (built !== undefined) note = `the native core is that of the package ${installed.title}; ${built} is not used`
      return module
    }
  }
  const { present, looked } = builtModules()
  if (present.length === 0) tried.push(from === null ? `there is none of ${looked.join(', ')}` : 'this clone is not built')
  for (const path of present) {
    // The musl binary on a glibc system (or the reverse) fails here; the next one may fit.
    const module = open(path)
    if (module !== null) return module
  }
  const { platform, arch } = process
  throw new ServerError('UNAVAILABLE', noModuleText({ platform, arch, glibc: glibcVersion(), clone: from }, ownVersion(), tried))
}

/** What a user should know of the choice of the module: that the one of a clone is not used. Null when there was none. */
export function nativeNote(): string | null {
  return note
}

/** Version of the glibc that runs this process, null without one. Takes milliseconds: asked after a failure only. */
function glibcVersion(): string | null {
  // Otherwise the report asks for the names of all network peers.
  if (process.report !== undefined) Object.assign(process.report, { excludeNetwork: true })
  const report: unknown = process.report?.getReport()
  return (report as { header?: { glibcVersionRuntime?: string } } | undefined)?.header?.glibcVersionRuntime ?? null
}

/**
 * Starts loading ONNX Runtime on a thread of its own, before there is a core. Saves time and decides nothing: whatever goes
 * wrong is told to the first model that needs the library, or by `createCore`.
 */
export function preloadOnnxRuntime(library: string, settings: Setting[]): void {
  let native: NativeModule
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
 * What of ONNX Runtime's providers for devices is on this machine.
 *
 * @param library npm's ONNX Runtime; null without
 * @param settings of the backend `onnxruntime`
 */
export function findProviders(library: string | null, settings: Setting[]): ProviderReport {
  return loadNative().findProviders(library, settings)
}

/**
 * Ends the process while the core may be loading or running a model. `process.exit` would destroy ONNX Runtime's static objects
 * under its threads, which ends in a crash now and then instead of in `code`. No exit listener runs.
 */
export function exitNow(code: number): never {
  loaded?.exitNow(code)
  process.exit(code)
}

/** Sends one message to the service manager that listens at `socket`, without waiting. */
export function notifyManager(socket: string, message: string): void {
  loadNative().notify(socket, message)
}

/**
 * What a descriptor is that the service manager gave. Programs that are started later do not inherit it.
 *
 * @throws {ServerError} `INVALID_ARG` when it is no open socket.
 */
export function describeSocket(fd: number): GivenSocket {
  return now(() => loadNative().describeSocket(fd))
}

/** The routing table of HTTP, as the core reads it. */
export function describeRoutes(): Route[] {
  return (JSON.parse(loadNative().describeRoutes()) as { routes: Route[] }).routes
}

/**
 * Reads the text of a keys file as a server does.
 *
 * @throws {ServerError} `INVALID_ARG` with the line, the field and what is wrong.
 */
export function checkKeys(text: string): void {
  now(() => loadNative().checkKeys(text))
}

/** The devices of this process. The first call opens the driver, which takes up to a second where there is one. */
export function listDevices(): DeviceList {
  return loadNative().listDevices()
}

/** The devices of the machine, by NVML; `visible` is the value of CUDA_VISIBLE_DEVICES. Waits for the devices: for commands, not for a server. */
export function listMachineDevices(visible: string | null): MachineDevices {
  return loadNative().listMachineDevices(visible)
}

/** Creates a core. */
export function createCore(...args: CoreArguments): Core {
  return createBridge(loadNative(), ...args)
}
