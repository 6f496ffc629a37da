/**
 * Entry point `nereid/internal`: what the commands in `src/tools` use of the server's package, and all that they use.
 * Not a public interface: it changes with any release.
 */

/** The command line of a command: its arguments, errors in them, and the server that it asks. */
export { CommandError, commandNamed, readArguments, usageOf, type CommandArguments } from './cli/arguments.js'
export { ask, headerOf, headersWithKey, membersOf, remoteOf, type Remote } from './cli/remote.js'
export { invocation } from './config/invocation.js'

/** Texts for people: printable, counted, quoted for a shell, with the nearest word and the reason of the system. */
export { counted, printable, shown, type Format } from './cli/output.js'
export { nearest } from './config/suggest.js'
export { shellWord } from './config/shell_word.js'

/** The tables of commands and options, for completion and the printed configuration. */
export { COMMANDS, type Command, type CommandOption } from './cli/commands.js'
export { FRONT_END_OPTIONS, FRONT_END_PORT, frontEndAdvice } from './cli/front_end.js'
export { FLAGS, optionName, type Flag } from './cli/flags.js'

/** Options of a server: read, judged one by one or together, and resolved to settings. */
export { OptionError, bytesOf, findFlag, isFlag, parseArguments, parseObject, type Parsed } from './cli/parse.js'
export { readBackendConfig, resolveSettings } from './cli/settings.js'
export { readOptions } from './cli/sources.js'

/** Servers: one as from the command line, one of this process, and one that only loads models. */
export { serve } from './cli/serve.js'
export { Server, type InferResult, type Model, type Tensor, type TensorData } from './index.js'
export { loadQuietly } from './api/loading.js'
export type { ServerSettings } from './api/server.js'
export { describeModel, type ModelDescription, type TensorDescription } from './api/description.js'

/** Configurations of models: read, completed, and the places of mistakes. */
export {
  ConfigSyntaxError,
  completeConfig,
  configurationIfAny,
  parsePbtxt,
  readConfig,
  selectVersions,
  type ModelConfig,
  type Span,
} from './config/index.js'
export { ModelInstanceGroup_Kind } from './config/generated/model_config_pb.js'
export { Lexer, type Token } from './config/pbtxt_lexer.js'

/** Backends: the table, and advice about those that this release does not have. */
export {
  BACKENDS,
  DEFAULT_MAX_BATCH_SIZE,
  GRAPHDEF,
  KERAS,
  absentBackend,
  backendMeant,
  backendRow,
  isBuiltIn,
  isForInit,
  isOfOnnxRuntime,
  providerName,
} from './config/index.js'
export { libraryBackends } from './repository/libraries.js'
export { ownCode, withPythonBackend } from './repository/python_backends.js'

/** Files: bounded reads that follow no FIFO, and advice about a path. */
export {
  TEXT_FILES,
  absentHint,
  exportedHint,
  fileHint,
  namesIn,
  noLog,
  readRegularFile,
  reasonOf,
  statIfAny,
} from './config/index.js'
export { isDirectory } from './repository/scan.js'
export { schemeOf, writtenScheme, type Scheme } from './stores/client.js'

/** Model repositories: their models and versions, mistakes found without a load, downloads of clouds. */
export {
  explain,
  inspectModel,
  inspectRepositories,
  plainReason,
  requireSafeName,
  type Finding,
  type InspectedModel,
  type LoadEvent,
  type LoadFailure,
  type Near,
  type Repository,
  type RepositorySettings,
  type StartFailure,
} from './repository/index.js'
export { download, type Downloads } from './repository/downloads.js'
export { findModels, misplacedIn } from './repository/scan.js'
export { findVersions } from './repository/versions.js'

/** Files of models: graphs of ONNX, folders of text models, imports of code. */
export { lookAt, textFolderOf, whyNoWeights } from './repository/index.js'
export { onnxPath } from './repository/graph_io.js'
export type { GraphValue, OnnxFile } from './repository/onnx_file.js'
export { isCode, relativeImports } from './native/typescript.js'
export { isInModel } from './native/index.js'
export type { TextFolder, TextGuess } from './native/contract.js'

/** Interpreters of Python, for scripts that a command runs. */
export { pythonRuntime } from './api/python.js'
export { askPython, runPython, userPython } from './repository/index.js'

/** This machine and the native module: devices, providers, programs, errors, datatypes. */
export {
  ServerError,
  asServerError,
  checkKeys,
  exitNow,
  findProviders,
  listDevices,
  listMachineDevices,
  type Device,
  type DeviceList,
  type MachineDevices,
  type ProviderReport,
} from './native/index.js'
export { DATATYPES, type Datatype } from './native/datatypes.js'
export { ROOT, nativeProgram, ownVersion } from './native/locate.js'
export { findOnnxRuntime } from './native/onnxruntime.js'
