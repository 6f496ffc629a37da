/** Model configurations that a model completes. Texts are those of Python models, which Triton defines. */

import { type Datatype, configName } from './datatypes.js'
import { RuleError } from './errors.js'

/** A tensor of a configuration, as `ModelConfig.addInput` takes it. */
export interface ConfigTensor {
  name: string
  datatype: Datatype
  dims: readonly number[]
  /** For inputs only. */
  optional?: boolean
}

/** A tensor of a configuration in the JSON form of Triton. */
export interface RawTensor {
  name: string
  data_type?: string
  dims?: readonly (number | string)[]
  reshape?: { readonly shape?: readonly (number | string)[] }
  optional?: boolean
}

/** A model configuration in the JSON form of Triton. */
export interface Configuration {
  name?: string
  max_batch_size?: number
  input?: RawTensor[]
  output?: RawTensor[]
  parameters?: Readonly<Record<string, { readonly string_value?: string } | undefined>>
  model_transaction_policy?: { decoupled?: boolean }
  sequence_batching?: { state?: readonly (Omit<RawTensor, 'name'> & { output_name: string })[] }
  [field: string]: unknown
}

/** The configuration that `autoCompleteConfig` completes. A contradiction to config.pbtxt is an error. */
export class ModelConfig {
  readonly #config: Configuration
  readonly #model: string

  constructor(config: Configuration, model: string) {
    this.#config = config
    this.#model = model
  }

  /** The configuration itself, not a copy. */
  get json(): Configuration {
    return this.#config
  }

  setMaxBatchSize(size: number): this {
    const present = this.#config.max_batch_size ?? 0
    if (present > size)
      throw new RuleError(
        `configuration specified max_batch_size ${present}, but model '${this.#model}' specified ` +
          `max_batch_size ${size}`,
      )
    if (present === 0) this.#config.max_batch_size = size
    return this
  }

  setDynamicBatching(): this {
    for (const scheduler of ['sequence_batching', 'ensemble_scheduling']) {
      if (this.#config[scheduler] !== undefined)
        throw new RuleError(
          `Configuration specified scheduling_choice as '${scheduler}', but model '${this.#model}' ` +
            `tries to set scheduling_choice as 'dynamic_batching'`,
        )
    }
    this.#config['dynamic_batching'] ??= {}
    return this
  }

  setDecoupled(decoupled: boolean): this {
    const policy = (this.#config.model_transaction_policy ??= {})
    // A configuration in the form of JSON names members that are false only if it was written by hand.
    if (policy.decoupled !== undefined && policy.decoupled !== decoupled)
      throw new RuleError(
        `model '${this.#model}' declares decoupled ${decoupled}, and the model configuration specifies ` +
          `decoupled ${policy.decoupled}`,
      )
    policy.decoupled = decoupled
    return this
  }

  addInput(tensor: ConfigTensor): this {
    return this.#add('input', tensor)
  }

  addOutput(tensor: ConfigTensor): this {
    return this.#add('output', tensor)
  }

  #add(kind: 'input' | 'output', { name, datatype, dims, optional }: ConfigTensor): this {
    const given: RawTensor = { name, data_type: configName(datatype), dims: [...dims] }
    if (optional === true) given.optional = true
    const all = (this.#config[kind] ??= [])
    const present = all.find((tensor) => tensor.name === name)
    if (optional === false && present?.optional === true)
      throw new RuleError(
        `model '${this.#model}', tensor '${name}': the model expects optional false but the model configuration ` +
          'specifies optional true',
      )
    if (present === undefined) all.push(given)
    else this.#merge(kind, present, given)
    return this
  }

  #merge(kind: string, present: RawTensor, given: RawTensor): void {
    const { name, data_type = 'TYPE_INVALID', dims = [] } = present
    if (data_type !== 'TYPE_INVALID' && data_type !== given.data_type)
      throw new RuleError(
        `unable to load model '${this.#model}', configuration expects datatype ${data_type} for ${kind} '${name}', ` +
          `model provides ${given.data_type}`,
      )
    const wanted = given.dims ?? []
    const isFit = dims.length === wanted.length && wanted.every((dim, i) => dim === -1 || dim === Number(dims[i]))
    if (dims.length > 0 && !isFit)
      throw new RuleError(
        `model '${this.#model}', tensor '${name}': the model expects dims [${wanted.join(', ')}] but the model ` +
          `configuration specifies dims [${dims.join(', ')}]`,
      )
    Object.assign(present, { ...given, dims: dims.length > 0 ? dims : wanted })
  }
}
