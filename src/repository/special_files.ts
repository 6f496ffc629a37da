/**
 * Refuses a version directory that holds something else than files and directories: opening a FIFO waits for a writer, reading a
 * device need not end, and both would happen inside the library that loads the model, where nothing can stop it.
 */
import type { BigIntStats } from 'node:fs'
import { ServerError } from '../native/index.js'
import { eachIn } from './walk.js'

/** @throws {ServerError} `INVALID_ARG` naming the first one. */
export async function refuseSpecialFiles(versionDirectory: string, model: string, version: number): Promise<void> {
  await eachIn(versionDirectory, (path, stat) => {
    if (stat.isFile() || stat.isDirectory()) return
    throw new ServerError(
      'INVALID_ARG',
      `unable to load model '${model}' version ${version}: '${path}' is ${kindOf(stat)}; a version directory may hold files and directories only`,
    )
  })
}

function kindOf(stat: BigIntStats): string {
  if (stat.isFIFO()) return 'a FIFO'
  if (stat.isSocket()) return 'a socket'
  return stat.isCharacterDevice() || stat.isBlockDevice() ? 'a device' : 'no regular file'
}
