/** Errors and sizes of the local disk. */

import { access, constants } from 'node:fs/promises'
import { StoreError, storeFailure } from './client.js'

export const codeOf = (error: unknown): string => String((error as NodeJS.ErrnoException | null)?.code ?? '')

const DISK = new Set([
  'ENOSPC',
  'EDQUOT',
  'EIO',
  'EROFS',
  'EACCES',
  'EPERM',
  'EMFILE',
  'ENFILE',
  'ENOENT',
  'ENAMETOOLONG',
  'EFBIG',
])

export const isOfDisk = (error: unknown): boolean =>
  storeFailure(error) === 'local' || (storeFailure(error) === null && DISK.has(codeOf(error)))

/** Converts a file system error to a `local` failure; returns other errors unchanged. */
export function asLocal(error: unknown): unknown {
  return storeFailure(error) === null && isOfDisk(error)
    ? new StoreError('local', (error as Error).message, { cause: error })
    : error
}

export async function exists(path: string): Promise<boolean> {
  return access(path, constants.F_OK).then(
    () => true,
    () => false,
  )
}

/** Formats a number of bytes for people. */
export function sizeOf(bytes: number): string {
  if (bytes < 1048576) return `${(bytes / 1024).toFixed(1)} KiB`
  return `${(bytes / 1048576).toFixed(bytes < 10 * 1048576 ? 1 : 0)} MiB`
}
