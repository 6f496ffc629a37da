#!/usr/bin/env node
/**
 * `generate-declarations.mjs FILE`: TypeScript declarations of the native module, as napi-derive writes them while crates/node is compiled.
 *
 * `napi build` would do the same, but it names the target to Cargo, which then compiles all crates again in a directory of that target.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateTypeDef } from '@napi-rs/cli'
import { capture } from './lib/run.mjs'
import { ROOT } from './setup.mjs'

const [file] = process.argv.slice(2)
const typeDefDir = mkdtempSync(join(tmpdir(), 'nereid-declarations-'))
process.on('exit', () => rmSync(typeDefDir, { recursive: true, force: true }))

// Another value of the variable makes Cargo compile this one crate, and no other.
const env = { ...process.env, NAPI_TYPE_DEF_TMP_FOLDER: typeDefDir }
const { code, errors } = await capture('cargo', ['build', '--locked', '--profile=quick', '--package=nereid-node'], { cwd: ROOT, quiet: true, env })
if (code !== 0) {
  process.stderr.write(errors)
  process.exit(code)
}
const { dts } = await generateTypeDef({ typeDefDir, cwd: ROOT })
if (dts === '') {
  process.stderr.write(`cargo wrote no declarations into ${typeDefDir}: is napi-derive of Cargo.lock the one that @napi-rs/cli of package-lock.json reads?\n`)
  process.exit(1)
}
writeFileSync(file, dts)
