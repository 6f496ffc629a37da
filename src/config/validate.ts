/**
 * Rules of a configuration that need no model file, in Triton's order: the first mistake is reported.
 *
 * `[cfg]` rules run when the repository is polled and again at load; `[io]` rules run at load, and at polling too if
 * auto-complete is off and nothing will be completed later.
 */
import { backendHint } from './backend_names.js'
import { backendRow } from './backends.js'
import { invalid, noLog, quoted, type Log } from './error.js'
import type { ModelConfig, ModelMetrics } from './generated/model_config_pb.js'
import { validateText } from './text.js'
import { validateEnsemble } from './validate_ensemble.js'
import { validateIo } from './validate_io.js'
import { validateDynamicBatching, validateSequenceBatching } from './validate_scheduling.js'

/** Limits of a model's tags, and of characters in a key or a value: every sample of every scrape repeats them. */
const METRIC_TAGS_MAX = 64
const METRIC_TAG_CHARS_MAX = 1024

/** The only histogram whose buckets a model may set. */
const CUSTOM_HISTOGRAM = 'nv_inference_first_response_histogram_ms'

/**
 * Checks a normalised configuration.
 *
 * @throws {ConfigError} INVALID_ARG with the text of the first rule that fails
 */
export function validate(config: ModelConfig, options: { io: boolean }, log: Log = noLog): void {
  validateFields(config, log)
  if (options.io) validateIo(config)
}

function validateFields(config: ModelConfig, log: Log): void {
  const { name, platform, backend } = config
  const ensemble = platform === 'ensemble'
  if (name === '') throw invalid("model configuration must specify 'name'")
  if (backend === '' && !ensemble)
    throw invalid(`unexpected platform type '${platform}' for ${name}${backendHint(platform, 'platform')}`)
  if (backend !== '' && ensemble)
    throw invalid(`Ensemble model '${name}' must have platform type 'ensemble' and empty backend type`)
  // A backend whose files have no platform accepts any.
  const platforms = backendRow(backend)?.files?.flatMap((file) => file.platform ?? []) ?? []
  if (platforms.length > 0 && !platforms.includes(platform)) {
    throw invalid(
      `unexpected 'platform' and 'backend' pair, got:${platform}, ${backend}; with backend "${backend}" ` +
        `platform is ${platforms.map((p) => `"${p}"`).join(' or ')}, or left out`,
    )
  }
  if (config.maxBatchSize < 0) throw invalid(`'max_batch_size' must be non-negative value for ${name}`)
  if (config.versionPolicy === undefined) throw invalid(`must specify 'version policy' for ${name}`)

  const choice = config.schedulingChoice
  if (choice.case === 'dynamicBatching') validateDynamicBatching(choice.value, config)
  if (choice.case === 'sequenceBatching') validateSequenceBatching(choice.value, config)
  if (choice.case === 'ensembleScheduling') {
    if (!ensemble) throw invalid(`ensemble scheduling cannot be set for model '${name}' whose platform is not ensemble`)
    validateEnsemble(choice.value, config)
  } else if (ensemble) {
    throw invalid(`ensemble scheduling must be set for ensemble ${name} whose platform is ensemble`)
  }

  if (config.modelTransactionPolicy?.decoupled === true && config.responseCache?.enable === true) {
    throw invalid(
      `Response Cache does not currently support model ${name} with 'decoupled' transaction policy. Please ` +
        'disable the response cache.',
    )
  }
  if (config.modelMetrics !== undefined) validateMetrics(config.modelMetrics, log)
  validateTags(config)
  validateText(config)
}

function validateTags(config: ModelConfig): void {
  const tags = Object.entries(config.metricTags)
  if (tags.length > METRIC_TAGS_MAX)
    throw invalid(`${tags.length} metric_tags for ${config.name}, at most ${METRIC_TAGS_MAX} are allowed`)
  for (const [key, value] of tags) {
    // Triton's client of Prometheus puts '_' in front of the key, and reserves names that begin with '__'.
    if (!/^(?!_)\w*$/.test(key)) {
      throw invalid(
        `Invalid label name: metric tag '${quoted(key)}' for ${config.name}; a key has letters of ASCII, digits and ` +
          "'_', and does not begin with '_'",
      )
    }
    const longest = Math.max(key.length, value.length)
    if (longest > METRIC_TAG_CHARS_MAX) {
      throw invalid(
        `metric tag '${quoted(key)}' has ${longest} characters for ${config.name}, at most ` +
          `${METRIC_TAG_CHARS_MAX} are allowed`,
      )
    }
  }
}

function validateMetrics(metrics: ModelMetrics, log: Log): void {
  for (const control of metrics.metricControl) {
    if (control.metricIdentifier === undefined) throw invalid("metric control must specify 'metric_identifier'")
    const family = control.metricIdentifier.family
    if (family === '') throw invalid("metric identifier must specify non-empty 'family'")
    if (control.metricOptions.case !== 'histogramOptions')
      throw invalid("metric control must specify 'histogram_options'")
    if (control.metricOptions.value.buckets.length === 0)
      throw invalid("histogram options must specify non-empty 'buckets'")
    if (family !== CUSTOM_HISTOGRAM)
      log('warning', `Metric family '${quoted(family)}' in 'metric_identifier' is not a customizable metric in Nereid.`)
  }
}
