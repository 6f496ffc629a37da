/** .github/CODEOWNERS names paths that exist, and has a line for each folder of code. */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ROOT, textOf } from './pages.js'

const paths = textOf('.github/CODEOWNERS')
  .split('\n')
  .filter((line) => line !== '' && !line.startsWith('#'))
  .map((line) => {
    const [path = '', ...owners] = line.split(' ')
    expect(owners, line).not.toHaveLength(0)
    return path
  })

test('every path of CODEOWNERS exists, once', () => {
  expect(paths.filter((path) => !path.includes('*') && !existsSync(join(ROOT, path)))).toEqual([])
  expect(paths.filter((path, at) => paths.indexOf(path) !== at)).toEqual([])
})

test('each crate and each folder of src has an owner of its own', () => {
  const folders = ['crates', 'src'].flatMap((parent) =>
    readdirSync(join(ROOT, parent), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => `/${parent}/${name}/`),
  )
  expect(folders.length).toBeGreaterThan(40)
  expect(folders.filter((folder) => !paths.includes(folder))).toEqual([])
})
