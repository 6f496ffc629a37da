/**
 * Imports the model's file: TypeScript where Node cannot strip types itself, and `nereid/backend`, which is this
 * package wherever the model lies.
 */

import { spawnSync } from 'node:child_process'
import * as nodeModule from 'node:module'
import { extname } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { RuleError } from './errors.js'
import { resolveOurs, transpiled } from './hooks.js'
import type { Load } from './load.js'

const CHECK_MS_MAX = 5000

const isTypeScript = (file: string) => ['.ts', '.mts', '.cts'].includes(extname(file))

/** Whether Node strips types: since 22.18, or with its flag since 22.6. */
const stripsTypes = () => Boolean((process.features as { typescript?: string | false }).typescript)

let areInstalled = false

function install(): void {
  if (areInstalled) return
  areInstalled = true
  const { register, registerHooks } = nodeModule as {
    register?: (file: string, parent: string) => void
    registerHooks?: (hooks: object) => void
  }
  if (!stripsTypes()) process.setSourceMapsEnabled(true)
  if (registerHooks !== undefined) {
    type Next = (specifier: string, context: object) => { format?: string | null }
    registerHooks({
      resolve: (name: string, context: object, next: Next) => resolveOurs(name) ?? next(name, context),
      load: (url: string, context: object, next: Next) =>
        (stripsTypes() ? null : transpiled(url)) ?? next(url, context),
    })
    return
  }
  if (register === undefined) throw new RuleError('the backend `javascript` needs Node 20.6 or newer')
  register('./hooks.js', import.meta.url)
  // `require` does not ask those hooks.
  type Resolve = (name: string, ...rest: unknown[]) => string
  const { Module } = nodeModule as unknown as { Module: Record<'_resolveFilename', Resolve> }
  const resolveFilename = Module['_resolveFilename']
  Module['_resolveFilename'] = (name, ...rest) => {
    const ours = resolveOurs(name)
    return ours === null ? resolveFilename.call(Module, name, ...rest) : fileURLToPath(ours.url)
  }
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
      `TypeScript model '${model}' needs Node 22.18 or newer, or esbuild installed next to the server`,
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
