/**
 * Loads the Rust core. The only module that touches the `.node` file.
 *
 * Uses the file of the installed package for this platform and version (`platform.ts`), else the one that a clone built
 * in `native/`. Nothing else is tried or downloaded: failing is better than silently running another binary.
 */

import { closeSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { createBridge, now, type CoreArguments, type NativeModule } from './bridge.js'
import type {
  Core,
  DeviceList,
  GivenSocket,
  MachineDevices,
  ModelIo,
  ProcessClaim,
  ProviderReport,
  Route,
  Setting,
  SharedSetting,
  TextFolder,
} from './contract.js'
import { ServerError } from './errors.js'
import { builtModules, clone, findPlatformPackage, ownVersion } from './locate.js'
import { findOnnxRuntime } from './onnxruntime.js'
import { nativeFileNames, noModuleText } from './platform.js'

export * from './contract.js'
export * from './errors.js'

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

/**
 * Claims settings of the process for a server.
 *
 * @throws {ServerError} `INVALID_ARG` when a running server has others.
 */
export function claim(settings: SharedSetting[]): ProcessClaim {
  const { ProcessClaim: Claim } = loadNative()
  return now(() => new Claim(settings))
}

/** Path of the native module, which worker threads load too. */
export function nativePath(): string {
  loadNative()
  return loadedFrom
}

/** Reports the end of a worker thread that ran a model; `how` is a predicate for the log. */
export function workerEnded(id: number, how: string): void {
  loadNative().workerEnded(id, how)
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

/**
 * Starts loading ONNX Runtime on its own thread before the core exists, to save time. Errors are reported later: by
 * `createCore`, or to the first model that needs the library.
 */
export function preloadOnnxRuntime(library: string, settings: Setting[]): void {
  let native: NativeModule
  try {
    native = loadNative()
  } catch {
    return
  }
  native.preloadOnnxruntime(library, settings)
  // An exit during loading might crash in the library and replace the exit code.
  process.once('exit', () => native.awaitPreload())
}

/**
 * Reports which device providers of ONNX Runtime are available on this machine.
 *
 * @param library npm's ONNX Runtime; null if absent
 * @param settings of the backend `onnxruntime`
 */
export function findProviders(library: string | null, settings: Setting[]): ProviderReport {
  return loadNative().findProviders(library, settings)
}

/**
 * Ends the process while the core may load or run a model. `process.exit` would destroy ONNX Runtime's static objects
 * under its threads, which sometimes crashes instead of exiting with `code`. Exit listeners do not run.
 */
export function exitNow(code: number): never {
  loaded?.exitNow(code)
  process.exit(code)
}

/** Sends one message to the service manager at `socket`, without waiting. */
export function notifyManager(socket: string, message: string): void {
  loadNative().notify(socket, message)
}

/**
 * Opens a regular file of a model and returns its descriptor; links may not lead out of the model's directory.
 *
 * @throws {ServerError} `INVALID_ARG` if it is outside, `INTERNAL` with the reason if it cannot be opened.
 */
export function openInModel(directory: string, path: string): number {
  return now(() => loadNative().openInModel(directory, path))
}

/** Whether a path is a regular file and links of it stay inside the model's directory. */
export function isInModel(directory: string, path: string): boolean {
  try {
    closeSync(openInModel(directory, path))
    return true
  } catch {
    return false
  }
}

/**
 * Describes a descriptor from the service manager, and sets close-on-exec for it.
 *
 * @throws {ServerError} `INVALID_ARG` when it is not an open socket.
 */
export function describeSocket(fd: number): GivenSocket {
  return now(() => loadNative().describeSocket(fd))
}

/** The routing table of HTTP. */
export function describeRoutes(): Route[] {
  return (JSON.parse(loadNative().describeRoutes()) as { routes: Route[] }).routes
}

/**
 * Validates the text of a keys file as a server does.
 *
 * @throws {ServerError} `INVALID_ARG` with the line, the field and the error.
 */
export function checkKeys(text: string): void {
  now(() => loadNative().checkKeys(text))
}

/** The native module, or null: some commands run without one. */
function nativeIfAny(): NativeModule | null {
  try {
    return loadNative()
  } catch {
    return null
  }
}

/**
 * Checks the parameters of a model of trees, and its trees if the directory of a version is given, with the rules of a
 * load. Does nothing without a native module.
 *
 * @param config a binary ModelConfig
 * @returns inputs and outputs of the trees; null if they were not read
 * @throws {ServerError} the error of the load.
 */
export function checkForest(config: Buffer, versionDirectory: string | null): ModelIo | null {
  return now(() => nativeIfAny()?.checkForest(config, versionDirectory) ?? null)
}

/**
 * Inputs and outputs of an ONNX file as a load finds them, which reads its weights, too; null without a native module
 * or ONNX Runtime.
 *
 * @throws {ServerError} the error of the load.
 */
export function readOnnxGraph(file: string, settings: Setting[]): ModelIo | null {
  const library = findOnnxRuntime()
  const native = nativeIfAny()
  return native === null || library === null ? null : now(() => native.readOnnxGraph(library, file, settings))
}

/**
 * The folder of a text model as a load reads it, without its graph; null without a native module.
 *
 * @param config a binary ModelConfig, whose parameters override the files
 * @throws {ServerError} the error of the load.
 */
export function readTextFolder(config: Buffer, versionDirectory: string): TextFolder | null {
  return now(() => nativeIfAny()?.readTextFolder(config, versionDirectory) ?? null)
}

/** The devices of this process. The first call opens the driver, which may take a second. */
export function listDevices(): DeviceList {
  return loadNative().listDevices()
}

/**
 * The devices of the machine, by NVML; `visible` is the value of CUDA_VISIBLE_DEVICES. Waits for the devices, so only
 * for commands.
 */
export function listMachineDevices(visible: string | null): MachineDevices {
  return loadNative().listMachineDevices(visible)
}

export function createCore(...args: CoreArguments): Core {
  return createBridge(loadNative(), ...args)
}
