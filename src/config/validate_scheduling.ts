/** Rules of `dynamic_batching` and `sequence_batching`, in Triton's order. */
import { invalid } from './error.js'
import {
  DataType,
  ModelQueuePolicy_TimeoutAction as TimeoutAction,
  ModelSequenceBatching_Control_Kind as Control,
  ModelSequenceBatching_Control_KindSchema,
  type ModelConfig,
  type ModelDynamicBatching,
  type ModelQueuePolicy,
  type ModelSequenceBatching,
  type ModelSequenceBatching_Control,
} from './generated/model_config_pb.js'

export function validateDynamicBatching(batching: ModelDynamicBatching, config: ModelConfig): void {
  const model = config.name
  for (const size of batching.preferredBatchSize) {
    if (size <= 0) throw invalid(`dynamic batching preferred size must be positive for ${model}`)
    if (size > config.maxBatchSize)
      throw invalid(`dynamic batching preferred size must be <= max batch size for ${model}`)
  }
  const levels = batching.priorityLevels
  if (levels !== 0n) {
    if (batching.defaultPriorityLevel === 0n || batching.defaultPriorityLevel > levels) {
      throw invalid(`default priority level must be in range [1, ${levels}] for ${model}`)
    }
    for (const key of Object.keys(batching.priorityQueuePolicy)) {
      if (BigInt(key) === 0n || BigInt(key) > levels)
        throw invalid(`priority queue policy must have priority level in range [1, ${levels}] for ${model}`)
    }
  }
  if (batching.preserveOrdering) {
    if (levels > 1n) throw invalid(`Only one priority level is allowed when 'preserve_ordering' is true for ${model}`)
    if ([batching.defaultQueuePolicy, ...Object.values(batching.priorityQueuePolicy)].some(delays)) {
      throw invalid(`Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for ${model}`)
    }
  }
}

/** True if later requests may overtake one that timed out. */
function delays(policy: ModelQueuePolicy | undefined): boolean {
  return (
    policy !== undefined && policy.defaultTimeoutMicroseconds !== 0n && policy.timeoutAction === TimeoutAction.DELAY
  )
}

const VALUE_LISTS = "'int32_false_true', 'fp32_false_true' or 'bool_false_true'"
const CORRELATION_TYPES = new Set<DataType>([
  DataType.TYPE_UINT64,
  DataType.TYPE_INT64,
  DataType.TYPE_UINT32,
  DataType.TYPE_INT32,
  DataType.TYPE_STRING,
])

export function validateSequenceBatching(batching: ModelSequenceBatching, config: ModelConfig): void {
  const model = config.name
  if (config.responseCache?.enable === true) {
    throw invalid(
      `Response Cache does not currently support model ${model} with sequence batching scheduler. Please ` +
        'disable the response cache.',
    )
  }
  for (const kind of [Control.CONTROL_SEQUENCE_START, Control.CONTROL_SEQUENCE_END, Control.CONTROL_SEQUENCE_READY]) {
    const control = controlOf(batching, kind, model)?.control
    if (control !== undefined) validateFlagValues(control, kind, model)
  }
  const correlation = controlOf(batching, Control.CONTROL_SEQUENCE_CORRID, model)?.control
  if (correlation !== undefined) {
    if (valueLists(correlation).some(([, length]) => length > 0)) {
      throw invalid(`sequence batching must not specify either ${VALUE_LISTS} for CONTROL_SEQUENCE_CORRID for ${model}`)
    }
    if (!CORRELATION_TYPES.has(correlation.dataType)) {
      throw invalid(
        `unexpected data type for control CONTROL_SEQUENCE_CORRID for ${model}. ` +
          'Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING',
      )
    }
  }

  const strategy = batching.strategyChoice
  if (strategy.case === 'oldest') {
    for (const size of strategy.value.preferredBatchSize) {
      if (size <= 0) throw invalid(`sequence batching preferred batch size must be positive for ${model}`)
      if (size > config.maxBatchSize)
        throw invalid(`sequence batching preferred batch size must be <= max batch size for ${model}`)
    }
  }
  if (strategy.case === 'direct') {
    const utilization = strategy.value.minimumSlotUtilization
    // Negated so that NaN, which is in no range, is rejected too.
    if (!(utilization >= 0 && utilization <= 1)) {
      throw invalid(`sequence batching minimum slot utilization must be in range (0.0, 1.0] for ${model}`)
    }
  }
}

/** The control tensor of `kind` with its values; null if the model does not use it. */
export function controlOf(
  batching: ModelSequenceBatching,
  kind: Control,
  model: string,
): { name: string; control: ModelSequenceBatching_Control } | null {
  let found: { name: string; control: ModelSequenceBatching_Control } | null = null
  const names = new Set<string>()
  for (const { name, control: controls } of batching.controlInput) {
    if (name === '') throw invalid(`sequence batching control tensor must have a name for ${model}`)
    if (names.has(name))
      throw invalid(`sequence batching control tensor '${name}' is specified for multiple control kinds for ${model}`)
    names.add(name)
    for (const control of controls) {
      if (control.kind !== kind) continue
      if (found !== null)
        throw invalid(`sequence batching specifies multiple ${controlName(kind)} tensors for ${model}`)
      found = { name, control }
    }
  }
  return found
}

function validateFlagValues(control: ModelSequenceBatching_Control, kind: Control, model: string): void {
  const given = valueLists(control).filter(([, length]) => length > 0)
  const first = given[0]
  const suffix = `for ${controlName(kind)} for ${model}`
  if (first === undefined) throw invalid(`sequence batching must specify either ${VALUE_LISTS} ${suffix}`)
  if (given.length > 1) {
    throw invalid(
      "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and " +
        `'bool_false_true' ${suffix}`,
    )
  }
  if (first[1] !== 2) throw invalid(`sequence batching control '${first[0]}' must have exactly 2 entries ${suffix}`)
}

function valueLists(control: ModelSequenceBatching_Control): [string, number][] {
  return [
    ['int32_false_true', control.int32FalseTrue.length],
    ['fp32_false_true', control.fp32FalseTrue.length],
    ['bool_false_true', control.boolFalseTrue.length],
  ]
}

/** Load-time rules of the initial states of implicit state. The core checks the length of a data file later. */
export function validateInitialStates(batching: ModelSequenceBatching): void {
  const seen = new Set<string>()
  for (const state of batching.state) {
    const input = state.inputName
    if (state.initialState.length > 1) {
      throw invalid(
        `initial_state field for state input '${input}' must contain exactly one or zero element. Found ` +
          `'${state.initialState.length}' elements.`,
      )
    }
    const initial = state.initialState[0]
    if (initial === undefined) continue
    if (initial.dataType !== state.dataType) {
      throw invalid(
        `The data type used for 'initial_state' field of state '${input}' does not match the state data type.`,
      )
    }
    if (initial.name === '')
      throw invalid(`Field 'name' must be set when using initial_state for state input '${input}'.`)
    if (seen.has(input)) throw invalid(`State input name '${input}' specified more than once.`)
    seen.add(input)
    if (initial.dims.length !== state.dims.length) {
      throw invalid(
        "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state " +
          `input '${input}'. ` +
          `${initial.dims.length} != ${state.dims.length}`,
      )
    }
    initial.dims.forEach((dim, index) => {
      if (dim === -1n)
        throw invalid(`'initial_state' field for state input name '${input}' contains variable dimensions.`)
      const declared = state.dims[index]
      if (declared !== -1n && declared !== dim) {
        throw invalid(
          `'initial_state' dim for input name '${input}' doesn't match 'state' dim description. ${dim} != ${declared}`,
        )
      }
    })
    if (initial.stateData.case === undefined)
      throw invalid(`initial_state setting expects state'${input}' to have state_data set`)
  }
}

function controlName(kind: Control): string {
  return ModelSequenceBatching_Control_KindSchema.value[kind]?.name ?? String(kind)
}
