/** Files of `packaging/templates`, which `nereid new` and `nereid init --python` write. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../../internal.js'
import type { ModelFile } from '../init/place.js'

/** A file below a folder of templates. NAME in its path, `{{name}}` and `{{command}}` in its text get their values. */
export function templateFile(folder: string, path: string, name = '', command = ''): ModelFile & { text: string } {
  const text = readFileSync(join(ROOT, 'packaging/templates', folder, path), 'utf8')
  return {
    to: path.replaceAll('NAME', () => name),
    text: text.replaceAll('{{name}}', () => name).replaceAll('{{command}}', () => command),
  }
}

export interface Template {
  kind: 'javascript' | 'python'
  files: ModelFile[]
  /** The test, below the model's directory. */
  test: string
}

/** The smallest model in a language, and its test. */
export function modelTemplate(language: 'ts' | 'python'): Template {
  const [kind, model, test] =
    language === 'ts'
      ? (['javascript', '1/model.ts', 'model.test.mjs'] as const)
      : (['python', '1/model.py', 'test_model.py'] as const)
  return { kind, files: [model, test].map((path) => templateFile(`model-${language}`, path)), test }
}

export type BackendLanguage = 'c' | 'rust'

const BACKENDS: Readonly<Record<BackendLanguage, readonly string[]>> = {
  c: ['src/NAME.c', 'Makefile', 'README.md'],
  rust: ['src/lib.rs', 'src/triton.rs', 'build.rs', 'Cargo.toml', 'Makefile', 'rustfmt.toml', 'README.md'],
}

/** Files of a backend without the headers. `command` is how the user calls this program. */
export function backendFiles(name: string, language: BackendLanguage, command: string): ModelFile[] {
  return [
    ...BACKENDS[language].map((path) => templateFile(`backend-${language}`, path, name, command)),
    templateFile('backend', 'test.mjs', name),
    // npm packs no such file.
    { to: '.gitignore', text: '/backends\n/build\n/target\n' },
    templateFile('backend', 'models/NAME/config.pbtxt', name),
    // A version is a directory, and most tools do not keep an empty one.
    { to: `models/${name}/1/.keep`, text: '' },
  ]
}

const APP = [
  'README.md',
  'tsconfig.json',
  'tsconfig.build.json',
  ...['ask', 'client', 'client.node-test', 'client.test', 'main', 'server'].map((file) => `src/${file}.ts`),
]

/** Model of the project that `nereid new app` writes. */
const APP_MODEL = 'double'

/** Files of a project. `nereid` is how it depends on this package. */
export function appFiles(name: string, nereid: string): ModelFile[] {
  const manifest = JSON.parse(templateFile('app', 'package.json').text) as { dependencies: object }
  const dependencies = { nereid, ...manifest.dependencies }
  const model = modelTemplate('ts').files.map((file) => ({ ...file, to: join('models', APP_MODEL, file.to) }))
  return [
    { to: 'package.json', text: `${JSON.stringify({ ...manifest, name, dependencies }, null, 2)}\n` },
    ...APP.map((path) => templateFile('app', path, name)),
    // npm packs no such file.
    { to: '.gitignore', text: '/dist\n/node_modules\n' },
    ...model,
  ]
}
