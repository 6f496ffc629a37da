/**
 * Roles and aliases of text models: what `nereid.text` and `nereid.alias` may say in a model of any backend, and
 * `--text-alias` on the command line. The core reads the other parameters of the backend `text`, with its files.
 */

import { backendRow } from './backends.js'
import { invalid, quoted } from './error.js'
import type { ModelConfig } from './generated/model_config_pb.js'
import { nearest } from './suggest.js'

/** Parameter that gives a model of any backend the endpoints of a role. */
export const ROLE_PARAMETER = 'nereid.text'
/** Parameters of a model that chats: the names of its tensors, files below its directory, and a name of a parser. */
export const CHAT_PARAMETERS = {
  tensors: 'nereid.chat',
  tokenizer: 'nereid.chat.tokenizer',
  template: 'nereid.chat.template',
  toolParser: 'nereid.chat.tool_parser',
} as const
/** Parsers of tool calls, as `chat::tools::ToolParser` of the core has them. */
export const TOOL_PARSERS: readonly string[] = ['llama3', 'mistral', 'hermes', 'pythonic']
/** Parameters of backends, which warn of those that they do not know. */
const OF_BACKENDS = /^nereid\.(?:python|javascript|host)\./
/** Parameter with other names of a text model: `NAME [tokens=TOKENIZER]; …`. */
export const ALIAS_PARAMETER = 'nereid.alias'

/** Parameters that the backend `text` reads; others are those of ONNX Runtime, or unknown. */
const PARAMETERS = [
  ROLE_PARAMETER,
  ALIAS_PARAMETER,
  ...'pooling normalize activation max_length dimensions file prompt max_batch_tokens'.split(' '),
]
/** Files that a folder of a hub has if its texts are prepared by a tokenizer of its own. */
export const TEXT_FILES: readonly string[] = ['config.json', 'tokenizer.json']

const ROLES = ['embed', 'rerank', 'classify']
/** Tokenizers of token ids that clients may send under an alias. */
const TOKENIZERS = ['own', 'cl100k_base', 'o200k_base']

/** Maximum number of aliases of one model, and of characters in one. */
const ALIASES_MAX = 64
const ALIAS_CHARS_MAX = 256

/** A name by which clients of text endpoints know a model. */
export interface TextAlias {
  alias: string
  /** A name of `TOKENIZERS`; empty if the alias does not say. */
  tokens: string
}

/** Why this is no alias, as the end of a sentence; null if it is one. */
export function whyNoAlias({ alias, tokens }: TextAlias): string | null {
  if (!/^[\w./:@+-]+$/.test(alias) || alias.length > ALIAS_CHARS_MAX)
    return `an alias has 1 to ${ALIAS_CHARS_MAX} letters of ASCII, digits and any of _./:@+-, got '${quoted(alias)}'`
  if (tokens === '' || TOKENIZERS.includes(tokens)) return null
  return `tokens of an alias are ${TOKENIZERS.join(', ')}, got '${quoted(tokens)}'`
}

/**
 * The aliases that a configuration declares.
 *
 * @throws {ConfigError} INVALID_ARG for one that is malformed
 */
export function aliasesOf(config: ModelConfig): TextAlias[] {
  const text = config.parameters[ALIAS_PARAMETER]?.stringValue
  if (text === undefined) return []
  const fail = (why: string): never => {
    const example = 'text-embedding-3-small tokens=cl100k_base; other-name'
    throw invalid(`parameter '${ALIAS_PARAMETER}' of model '${config.name}': ${why}; write for example "${example}"`)
  }
  const parts = text.split(';', ALIASES_MAX + 1)
  if (parts.length > ALIASES_MAX) fail(`a model has at most ${ALIASES_MAX} aliases`)
  return parts.map((part) => {
    const [alias = '', setting, ...more] = part.trim().split(/\s+/)
    if (more.length > 0 || (setting !== undefined && !setting.startsWith('tokens=')))
      fail(`after the name '${quoted(alias)}' only tokens=${TOKENIZERS.join('|')} may follow, got '${quoted(part)}'`)
    const found = { alias, tokens: setting?.slice('tokens='.length) ?? '' }
    const why = setting === 'tokens=' ? 'tokens= needs a value' : whyNoAlias(found)
    return why === null ? found : fail(why)
  })
}

/** True if the endpoints of text models serve it. */
const isTextModel = (config: ModelConfig): boolean =>
  backendRow(config.backend)?.isText === true || Object.hasOwn(config.parameters, ROLE_PARAMETER) || chats(config)

/** True if chats and completions are served by it. The core decides; its tensors may be known after it was loaded. */
export const chats = ({ backend, parameters, input, output }: ModelConfig): boolean =>
  backend === 'vllm' ||
  Object.hasOwn(parameters, CHAT_PARAMETERS.tensors) ||
  ((input.length === 0 || input.some(({ name }) => name === 'text_input')) &&
    (output.length === 0 || output.some(({ name }) => name === 'text_output')))

/** @throws {ConfigError} INVALID_ARG for a role or an alias that no endpoint could serve */
export function validateText(config: ModelConfig): void {
  const role = config.parameters[ROLE_PARAMETER]?.stringValue
  const where = `of model '${config.name}'`
  if (role !== undefined && !ROLES.includes(role))
    throw invalid(`parameter '${ROLE_PARAMETER}' ${where} is '${quoted(role)}', and may be ${ROLES.join(', ')}`)
  if (aliasesOf(config).length > 0 && !isTextModel(config)) {
    throw invalid(
      `parameter '${ALIAS_PARAMETER}' ${where} is only for text models: backend "text", any backend with the ` +
        `parameter '${ROLE_PARAMETER}' (${ROLES.join(', ')}), or a model that chats (text_input, text_output)`,
    )
  }
}

/**
 * Parameters that nothing reads, each with the one that was meant, or null: those of a model of the backend `text` that
 * look like another one, and, of any model, those with our prefix.
 */
export function misspeltParameters(config: ModelConfig): (readonly [name: string, meant: string | null])[] {
  const isText = backendRow(config.backend)?.isText === true
  const known = [...(isText ? PARAMETERS : [ROLE_PARAMETER, ALIAS_PARAMETER]), ...Object.values(CHAT_PARAMETERS)]
  return Object.keys(config.parameters).flatMap((name) => {
    const isOurs = name.startsWith('nereid.') && !OF_BACKENDS.test(name)
    if (known.includes(name) || !(isText || isOurs)) return []
    const meant = nearest(name, known)
    return meant === null && !isOurs ? [] : [[name, meant] as const]
  })
}

/** Aliases of a model that lead to another one of `all`, whose name goes before them; as texts for people. */
export function aliasClashes(config: ModelConfig, all: Iterable<ModelConfig>): string[] {
  const aliases = aliasesOf(config).map(({ alias }) => alias)
  if (aliases.length === 0) return []
  const others = [...all].filter(({ name }) => name !== config.name)
  return aliases.flatMap((alias) => {
    const where = `alias '${alias}' of model '${config.name}' is also`
    if (others.some(({ name }) => name === alias)) return [`${where} the name of a model, which takes precedence`]
    const first = others
      .filter((other) => other.name < config.name && aliasesOf(other).some((one) => one.alias === alias))
      .map(({ name }) => name)
      .sort()[0]
    return first === undefined ? [] : [`${where} an alias of model '${first}', which takes precedence`]
  })
}
