/** Functions of the native module. */

import { closeSync } from 'node:fs'
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
import { loadedModule, loadNative } from './load.js'
import { findOnnxRuntime } from './onnxruntime.js'

export * from './contract.js'
export * from './errors.js'
export { loadNative, nativeNote, nativePath } from './load.js'

/**
 * Claims settings of the process for a server.
 *
 * @throws {ServerError} `INVALID_ARG` when a running server has others.
 */
export function claim(settings: SharedSetting[]): ProcessClaim {
  const { ProcessClaim: Claim } = loadNative()
  return now(() => new Claim(settings))
}

/** Reports the end of a worker thread that ran a model; `how` is a predicate for the log. */
export function workerEnded(id: number, how: string): void {
  loadNative().workerEnded(id, how)
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
  loadedModule()?.exitNow(code)
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
