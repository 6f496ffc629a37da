/** The comparison of two builds of one commit. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { differences } from '../../scripts/package/twice.mjs'

const root = mkdtempSync(join(tmpdir(), 'nereid-twice-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

/** A directory with one archive of these files. */
function archive(name: string, files: Record<string, string>, more: string[] = []): string {
  const directory = join(root, name)
  mkdirSync(join(directory, 'out'), { recursive: true })
  for (const [file, text] of Object.entries(files)) writeFileSync(join(directory, file), text)
  execFileSync('tar', ['--mtime=@0', ...more, '-czf', join('out', 'a.tgz'), ...Object.keys(files)], { cwd: directory })
  return join(directory, 'out')
}

test('equal archives have no differences; of others each file is named', async () => {
  const one = archive('one', { module: 'bytes', list: 'text' })
  expect(await differences(one, archive('two', { module: 'bytes', list: 'text' }), join(root, 's2'))).toEqual([])
  expect(await differences(one, archive('three', { module: 'other', more: 'text' }), join(root, 's3'))).toEqual([
    'a.tgz: list differs',
    'a.tgz: module differs',
    'a.tgz: more differs',
  ])
  expect(
    await differences(one, archive('four', { module: 'bytes', list: 'text' }, ['--mtime=@9']), join(root, 's4')),
  ).toEqual(['a.tgz: the files are equal, the archive around them is not'])
  const wheels = ['five', 'six'].map((name) => {
    const out = archive(name, { RECORD: name })
    rmSync(join(out, 'a.tgz'))
    execFileSync('python3', ['-m', 'zipfile', '-c', 'out/a.whl', 'RECORD'], { cwd: join(root, name) })
    return out
  })
  expect(await differences(wheels[0], wheels[1], join(root, 's6'))).toEqual(['a.whl: RECORD differs'])
  mkdirSync(join(root, 'empty'))
  expect(await differences(one, join(root, 'empty'), join(root, 's5'))).toEqual(['a.tgz is in one of them only'])
})
