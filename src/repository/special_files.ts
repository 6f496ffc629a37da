/**
 * Rejects a version directory that contains special files: opening a FIFO waits for a writer and reading a device may
 * never end, both inside the library that loads the model, where nothing can cancel them.
 */
import type { BigIntStats } from 'node:fs'
import { ServerError } from '../native/index.js'
import { eachIn } from './walk.js'

/** @throws {ServerError} `INVALID_ARG` naming the first special file. */
export async function refuseSpecialFiles(versionDirectory: string, model: string, version: number): Promise<void> {
  await eachIn(versionDirectory, (path, stat) => {
    if (stat.isFile() || stat.isDirectory()) return
    const text = `unable to load model '${model}' version ${version}: '${path}' is ${kindOf(stat)}`
    throw new ServerError('INVALID_ARG', `${text}; a version directory may hold files and directories only`)
  })
}

function kindOf(stat: BigIntStats): string {
  if (stat.isFIFO()) return 'a FIFO'
  if (stat.isSocket()) return 'a socket'
  return stat.isCharacterDevice() || stat.isBlockDevice() ? 'a device' : 'no regular file'
}
