/** `--text-alias`: names by which clients of the text endpoints know models. Pure. */

import { whyNoAlias } from '../config/text.js'
import type { TextAliasOption } from '../native/contract.js'
import type { Options } from './flags.js'
import { badOption } from './parse.js'

/** @throws {OptionError} for a malformed alias, and for two of one name */
export function readTextAliases({ textAlias }: Options): TextAliasOption[] {
  const all = textAlias.map(readAlias)
  const twice = all.find(({ alias }, at) => all.findIndex((other) => other.alias === alias) !== at)
  if (twice === undefined) return all
  const models = all.filter(({ alias }) => alias === twice.alias).map(({ model }) => `'${model}'`)
  throw badOption('text-alias', `The alias '${twice.alias}' is given to ${models.join(' and ')}; keep one of them`)
}

/** Reads `NAME=MODEL[:VERSION][,tokens=TOKENIZER]`. */
function readAlias(text: string): TextAliasOption {
  const form = /^(?<alias>[^=]*)=(?<model>[^,:]+(?::[1-9]\d{0,18})?)(?:,tokens=(?<tokens>[^,]+))?$/
  const { alias, model, tokens = '' } = form.exec(text)?.groups ?? {}
  if (alias === undefined || model === undefined) {
    const expected = "option format is '<name>=<model>[:<version>][,tokens=own|cl100k_base|o200k_base]'."
    throw badOption('text-alias', `--text-alias ${expected} Got ${text}`)
  }
  const why = whyNoAlias({ alias, tokens })
  if (why !== null) throw badOption('text-alias', `--text-alias=${text}: ${why}`)
  return { alias, model, tokens }
}
