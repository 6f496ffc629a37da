// `nereid dev` with wrong arguments. test/javascript/dev.test.ts has what it does.
import { expect, test } from 'vitest'
import * as dev from '../../src/tools/dev/index.js'
import { importsOf } from '../../src/tools/dev/imports.js'
import { files, runs } from './harness.js'

test('a repository that is missing, a file, a model or one of several is rejected', async () => {
  const directory = files({ 'models/m/1/model.ts': '', 'file.txt': '' })
  const fails = async (...args: string[]) => {
    const { code, out, err } = await runs(
      dev,
      args.map((arg) => arg.replace('.', directory)),
      directory,
    )
    expect([code, out]).toEqual([1, ''])
    return err
  }
  expect(await fails()).toBe('error: Usage: nereid dev REPOSITORY [options]\nName one model repository; got none\n')
  expect(await fails('./a', './b')).toContain('Name one model repository; got ./a, ./b')
  expect(await fails('./model')).toBe("error: model repository './model' is missing; did you mean './models'?\n")
  expect(await fails('./file.txt')).toMatch(/^error: '\.\/file\.txt' is not a directory; /)
  expect(await fails('./models/m')).toBe(
    "error: './models/m' is a model: name the directory above, nereid dev ./models\n",
  )
  expect(await fails('./models', '--model-repository=./models')).toContain('leave out --model-repository')
  expect(await fails('./models', '--model-control-mode=poll')).toContain('leave out --model-control-mode')
  expect(await fails('./models', '--model-namespacing=true')).toContain('leave out --model-namespacing')
  expect(await fails('./models', '--http-prot=1')).toContain("did you mean '--http-port'?")
})

test('the imports of a model are those of its versions and of their imports', () => {
  const directory = files({
    'm/1/model.ts': "import './a.ts'\nimport type { B } from \"../b.mts\"\nexport * from '../../lib/c'",
    'm/1/a.ts': "const load = await import('./data.json')\nrequire('../../lib/d')",
    'lib/d.js': "require('./missing')",
    'lib/e.ts': '',
  })
  const found = [...importsOf(`${directory}/m`)].map((path) => path.slice(directory.length + 1))
  for (const path of ['m/1/model.ts', 'm/1/a.ts', 'm/b.mts', 'm/1/data.json', 'lib/c', 'lib/d.js', 'lib/missing.js'])
    expect(found).toContain(path)
  expect(found).not.toContain('lib/e.ts')
})
