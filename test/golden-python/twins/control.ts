/** Snippets that load, unload and ask for models. */

import { readFileSync } from 'node:fs'
import type { Snippet } from './scope.ts'
import { attempt } from './show.ts'

const CODE = { name: 'CODE', data_type: 'TYPE_STRING', dims: [1] }
const OUT = { ...CODE, name: 'OUT' }
const CONFIG = {
  backend: 'javascript',
  input: [CODE],
  output: [OUT],
  parameters: { k: { string_value: 'override' } },
}
const FILE = readFileSync(new URL('files.ts', import.meta.url))

const isReady =
  (model: string, version?: string): Snippet =>
  ({ ctx }) =>
    ctx.models.isReady(model, version)

/** Tries a load; whether `small` is ready then. */
const load =
  (model: string, options: { config?: object | string; files?: Record<string, Uint8Array> } = {}): Snippet =>
  async ({ ctx }) => [await attempt(() => ctx.models.load(model, options)), await ctx.models.isReady('small')]

const unload =
  (model: string, options: { dependents?: boolean } = {}): Snippet =>
  ({ ctx }) =>
    ctx.models.unload(model, options)

export const control: Record<string, Snippet> = {
  'ctl.ready.small': isReady('small'),
  'ctl.ready.self': isReady('lab'),
  'ctl.ready.nope': isReady('nope'),
  'ctl.ready.v1': isReady('lab', '1'),
  'ctl.ready.v2': isReady('lab', '2'),
  'ctl.ready.vempty': isReady('lab', ''),
  'ctl.ready.kw': isReady('lab', '1'),
  'ctl.ready.vfloat': isReady('lab', '1.5'),
  'ctl.ready.vhuge': isReady('lab', '99999999999999999999'),
  'ctl.ready.vspace': isReady('lab', ' 1'),
  'ctl.ready.vtrail': isReady('lab', '1x'),
  'ctl.load': load('small'),
  'ctl.load.again': load('small'),
  'ctl.load.nope': load('nope'),
  'ctl.load.bad': load('bad'),
  'ctl.load.config.bad': load('small', { config: '{' }),
  'ctl.load.config.empty': load('small', { config: '' }),
  'ctl.load.config.kw': load('small', { config: '', files: {} }),
  'ctl.load.files.empty': load('small', { config: '', files: {} }),
  'ctl.load.dots': load('../x'),
  'ctl.config': load('small', { config: CONFIG }),
  'ctl.config.kw': ({ ctx }) => ctx.models.load('small', { config: CONFIG }),
  'ctl.files': load('small', { config: CONFIG, files: { 'file:1/model.ts': FILE } }),
  'ctl.files.new': async ({ ctx }) => {
    const files = { 'file:1/model.ts': FILE }
    const loaded = await attempt(() => ctx.models.load('brandnew', { config: CONFIG, files }))
    return [loaded, await ctx.models.isReady('brandnew')]
  },
  'ctl.files.version': ({ ctx }) => ctx.models.load('small', { config: CONFIG, files: { 'file:3/model.ts': FILE } }),
  'ctl.unload': unload('small'),
  'ctl.unload.nope': unload('nope'),
  'ctl.unload.again': unload('small'),
  'ctl.unload.dep': unload('small', { dependents: true }),
  'ctl.two': ({ ctx }) => ctx.models.load('two'),
  'ctl.ens': load('ens'),
  'ctl.ens.unload': unload('ens', { dependents: true }),
  'ctl.ens.after': isReady('ens'),
  'ctl.async': load('small'),
  'ctl.bls.after.load': ({ ctx }) => ctx.models.load('two'),
  'noctl.load': ({ ctx }) => ctx.models.load('lab'),
  'noctl.unload': ({ ctx }) => ctx.models.unload('lab'),
}
