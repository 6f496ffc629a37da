/**
 * Checks the parameters of a model that chats without loading it: the parser of tool calls, and the folder and the file
 * that they name. The rules and texts are those of a load (`engine::chat_model`). Templates are not compiled.
 */

import { isAbsolute, join, normalize } from 'node:path'
import { CHAT_PARAMETERS, TOOL_PARSERS, chats, nearest, statIfAny, type ModelConfig } from '../config/index.js'
import type { Report } from './named_files.js'

const PARSER = CHAT_PARAMETERS.toolParser

/** @param modelDirectory null if it is unknown: files are not checked then */
export function checkChat(config: ModelConfig, modelDirectory: string | null, report: Report): void {
  if (!chats(config)) return
  const { name, parameters } = config
  const parser = parameters[PARSER]?.stringValue
  if (parser !== undefined && !TOOL_PARSERS.includes(parser)) {
    const meant = nearest(parser, TOOL_PARSERS)
    const text = `${PARSER} is '${parser}', which is not a parser of tool calls: use one of ${TOOL_PARSERS.join(', ')}`
    const near = { field: 'string_value', value: parser }
    report(text, near, meant === null ? undefined : `Did you mean '${meant}'?`)
  }
  if (modelDirectory === null) return
  for (const [parameter, kind] of [
    [CHAT_PARAMETERS.tokenizer, 'folder'],
    [CHAT_PARAMETERS.template, 'file'],
  ] as const) {
    const named = parameters[parameter]?.stringValue
    if (named === undefined) continue
    const isBelow = !isAbsolute(named) && !/^\.\.(?:\/|$)/.test(normalize(named))
    const stat = isBelow ? statIfAny(join(modelDirectory, named)) : undefined
    if (kind === 'folder' ? stat?.isDirectory() === true : stat?.isFile() === true) continue
    report(
      `the parameter '${parameter}' of model '${name}' is '${named}', where a ${kind} below the model's directory is ` +
        'expected',
      { field: 'string_value', value: named },
    )
  }
}
