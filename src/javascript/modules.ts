/**
 * Imports the model's file: TypeScript where Node cannot strip types itself, and `nereid/backend`, which is this
 * package wherever the model lies.
 */

import { spawnSync } from 'node:child_process'
import * as nodeModule from 'node:module'
import { pathToFileURL } from 'node:url'
import { isTypeScript, needsTranspiler, stripsTypes } from '../native/typescript.js'
import { RuleError } from './errors.js'
import { resolveOurs, transpiled } from './hooks.js'
import * as backend from './index.js'
import type { Load } from './load.js'

const CHECK_MS_MAX = 5000

let areInstalled = false

function install(): void {
  if (areInstalled) return
  areInstalled = true
  const { register, registerHooks } = nodeModule as {
    register?: (file: string, options: object) => void
    registerHooks?: (hooks: object) => void
  }
  if (!stripsTypes()) process.setSourceMapsEnabled(true)
  // `require` asks the hooks in some versions of Node only, and not all of them can require an ES module.
  const { Module } = nodeModule as unknown as { Module: Record<'_load', (name: string, ...rest: unknown[]) => unknown> }
  const loadModule = Module['_load']
  Module['_load'] = (name, ...rest) => (name === 'nereid/backend' ? backend : loadModule.call(Module, name, ...rest))
  if (registerHooks !== undefined) {
    type Next = (specifier: string, context: object) => { format?: string | null }
    const resolve = (name: string, context: object, next: Next) => resolveOurs(name) ?? next(name, context)
    const load = (url: string, context: object, next: Next) => transpiled(url) ?? next(url, context)
    // A hook that reads files gives CommonJS another `require` in Node 22, which asks no hook.
    registerHooks(stripsTypes() ? { resolve } : { resolve, load })
  } else if (register === undefined) throw new RuleError('the backend `javascript` needs Node 20.6 or newer')
  else register('./hooks.js', { parentURL: import.meta.url, data: { stripsTypes: stripsTypes() } })
}

/** Brings the model of a file: its default export, or `module.exports`. */
export async function importModel({ file, model }: Pick<Load, 'file' | 'model'>): Promise<unknown> {
  install()
  try {
    const { default: exported } = (await import(pathToFileURL(file).href)) as { default?: unknown }
    // An ES module that was compiled to CommonJS has its default export one level deeper.
    const compiled = exported as { ['__esModule']?: boolean; default?: unknown } | null | undefined
    return compiled?.['__esModule'] === true ? compiled.default : exported
  } catch (error) {
    if (error instanceof SyntaxError) locate(error, file)
    if (!isTypeScript(file) || (error as { code?: string }).code !== 'NEREID_NO_TRANSPILER') throw error
    throw new RuleError(
      needsTranspiler(model),
    )
  }
}

/** Writes the place of a syntax error above its stack. V8 tells it to Node only, which prints it where it ends. */
function locate(error: SyntaxError, file: string): void {
  if (/^\S+:\d+\n/.test(error.stack ?? '')) return
  const { stderr } = spawnSync(process.execPath, ['--check', file], { encoding: 'utf8', timeout: CHECK_MS_MAX })
  const [place] = /^\S+:\d+\n/.exec(stderr) ?? []
  if (place !== undefined) error.stack = `${place}\n${error.stack}`
}
