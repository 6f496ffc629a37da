#!/usr/bin/env node
/**
 * `node scripts/package/twice.mjs [--target=NAME …]`: builds the packages of this commit, wheels included, here and
 * again in a clone elsewhere, and compares them byte by byte. Names each file that differs, and then exits with 1.
 * Takes two release builds.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ask, show } from '../lib/run.mjs'
import { filesBelow } from '../lib/stamp.mjs'
import { ROOT, SetupError, orExplain } from '../setup.mjs'
import { zigbuild } from './zig.mjs'

const digest = (path) => createHash('sha256').update(readFileSync(path)).digest('hex')

async function must(command, args, cwd) {
  if ((await show(command, args, { cwd })) !== 0) throw new SetupError(`${[command, ...args].join(' ')} failed`)
}

/** Sentences about differences between the tarballs of two directories; none if all bytes are equal. */
export async function differences(one, other, scratch) {
  const names = [...new Set([one, other].flatMap((directory) => readdirSync(directory)))].sort()
  const found = []
  for (const name of names) {
    const [a, b] = [one, other].map((directory) =>
      readdirSync(directory).includes(name) ? digest(join(directory, name)) : null,
    )
    if (a === b) continue
    if (a === null || b === null) {
      found.push(`${name} is in one of them only`)
      continue
    }
    const before = found.length
    const unpacked = await Promise.all(
      [one, other].map((directory, i) => unpack(join(directory, name), join(scratch, `${i}-${name}`))),
    )
    for (const path of [...new Set(unpacked.flatMap((files) => [...files.keys()]))].sort()) {
      if (unpacked[0].get(path) !== unpacked[1].get(path)) found.push(`${name}: ${path} differs`)
    }
    if (found.length === before) found.push(`${name}: the files are equal, the archive around them is not`)
  }
  return found
}

/** Paths in an archive with their digests. */
async function unpack(archive, directory) {
  mkdirSync(directory, { recursive: true })
  if (archive.endsWith('.whl')) await must('python3', ['-m', 'zipfile', '-e', archive, directory], ROOT)
  else await must('tar', ['-xzf', archive, '-C', directory], ROOT)
  return new Map(filesBelow(directory, ['.']).map(({ path }) => [path, digest(join(directory, path))]))
}

async function main() {
  if (ask('git', ['status', '--porcelain', '--untracked-files=no'], { cwd: ROOT }) !== '') {
    throw new SetupError('there are changes that are in no commit: the clone would not have them')
  }
  await zigbuild()
  const scratch = mkdtempSync(join(tmpdir(), 'nereid-twice-'))
  try {
    const clone = join(scratch, 'a-clone-elsewhere')
    await must('git', ['clone', '--quiet', '--no-hardlinks', ROOT, clone], scratch)
    // Sharing the installed compiler saves a minute.
    mkdirSync(join(clone, 'target', 'package'), { recursive: true })
    symlinkSync(join(ROOT, 'target', 'package', 'zig'), join(clone, 'target', 'package', 'zig'))
    const outs = [ROOT, clone].map((directory, i) => [directory, join(scratch, `tarballs-${i}`)])
    for (const [directory, out] of outs)
      await must(
        process.execPath,
        ['scripts/package/run.mjs', '--out', out, '--wheel', '--module=release', ...process.argv.slice(2)],
        directory,
      )
    const found = await differences(outs[0][1], outs[1][1], join(scratch, 'unpacked'))
    for (const sentence of found) process.stdout.write(`${sentence}\n`)
    process.stdout.write(
      found.length === 0 ? `equal: ${readdirSync(outs[0][1]).join(', ')}\n` : `${found.length} differences\n`,
    )
    process.exitCode = found.length === 0 ? 0 : 1
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await orExplain(main)
