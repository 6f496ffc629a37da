/**
 * Model configuration: from `config.pbtxt` or JSON to the effective `ModelConfig` of a served version.
 *
 * Calls in order:
 *
 * 1. at polling, `readConfig` (`loadConfigFile` or `parseJsonConfig`) → `completeConfig`: `nameOr` → `inferBackend`
 *    → `normalise` → `validate` → `requireName`;
 * 2. at load, `prepareConfig` = `resolveInstanceGroups` → `validate`, then the core opens the version's file and
 *    returns its inputs and outputs;
 * 3. then `finishConfig` = `completeFromModel` → `normalise` → `validate` → `resolveInstanceGroups` →
 *    `checkAgainstModel`;
 * 4. `toBinary`, `toTritonJson` and `readLabels` make the forms that the core publishes.
 *
 * Every function takes a configuration and returns one; none changes its argument. Failures are `ConfigError`s. Nothing
 * here watches directories, keeps state between calls, or calls the core.
 */
export type { ModelConfig } from './generated/model_config_pb.js'
export { ConfigError, ConfigSyntaxError, noLog } from './error.js'
export type { Log, Span } from './error.js'
export { readConfig, completeConfig, defaultMaxBatchSize, loadConfigFile, prepareConfig, finishConfig } from './load.js'
export {
  CONFIG_BYTES_MAX,
  CONFIG_VALUES_MAX,
  LABEL_BYTES_MAX,
  configurationIfAny,
  namesIn,
  readRegularFile,
  reasonOf,
  statIfAny,
} from './files.js'
export type { ConfigFlags, LoadedConfig, FinishContext } from './load.js'
export { parsePbtxt, pbtxtProblems, emptyConfig } from './pbtxt.js'
export { absentBackend, backendHint, backendMeant } from './backend_names.js'
export {
  BACKENDS,
  GRAPHDEF,
  KERAS,
  PROVIDERS,
  backendRow,
  isBuiltIn,
  isForInit,
  isOfOnnxRuntime,
  providerName,
  settingsOwner,
  type Backend,
} from './backends.js'
export { parseJsonConfig } from './json_in.js'
export { toTritonJson } from './json_out.js'
export { copy, isSame, toBinary, fromBinary } from './binary.js'
export { inferBackend, listFirstDirectory, nameOr, requireName } from './infer_backend.js'
export type { Listing } from './infer_backend.js'
export { normalise } from './normalise.js'
export { nearest } from './suggest.js'
export { lacksGpu, moveGpuGroupsToCpu, resolveInstanceGroups, NO_GPUS } from './instance_groups.js'
export type { Devices } from './instance_groups.js'
export { CHAT_PARAMETERS, TEXT_FILES, TOOL_PARSERS, aliasClashes, chats, misspeltParameters } from './text.js'
export { validate } from './validate.js'
export { validateIo } from './validate_io.js'
export { completeFromModel, DEFAULT_MAX_BATCH_SIZE, isComplete } from './complete.js'
export { checkAgainstModel, checksAgainstModel } from './check_model.js'
export type { ModelIo } from './check_model.js'
export { selectVersions } from './versions.js'
export { absentHint, exportedHint, fileHint, repositoryHint, unversionedHint } from './misplaced.js'
export { fitEnsemble } from './fit_ensemble.js'
export { readLabels } from './labels.js'
export type { Labels } from './labels.js'
