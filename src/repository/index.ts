/** Model repository: stores, versions, control modes, polling, load and unload. */

export { Stores } from './stores.js'
export { Repository, requireSafeName, NO_PARAMETERS, type LoadParameters } from './repository.js'
export { inspectModel, inspectRepositories, type Depth, type Finding, type InspectedModel } from './inspect.js'
export { explain } from './explain.js'
export type { Near } from './near.js'
export { detailOf, plainReason } from './load_error.js'
export { lookAt, whyNoWeights } from './onnx_file.js'
export { ownCode } from './python_backends.js'
export { askPython, runPython, userPython } from './python_code.js'
export { removeUnpacked, unpackPrefix } from './override.js'
export type { ControlMode, LoadEvent, RepositorySettings, ServedVersion } from './settings.js'
export type { IndexRow, LoadFailure, StartFailure } from './rows.js'
