/** Users of this machine, by name. */

import { readFileSync } from 'node:fs'

/** Ids of `nobody`, for systems whose file of users lacks it. */
const NOBODY = '65534:65534'

/** The largest number is no user: it means "unchanged" where a process takes another one. */
const ID_MAX = 4_294_967_294

/** `<uid>:<gid>` of a user, who is given by name or like that; null if there is no such user. */
export function userIds(user: string, file = '/etc/passwd'): string | null {
  if (/^\d{1,10}:\d{1,10}$/.test(user)) return user.split(':').every((id) => Number(id) <= ID_MAX) ? user : null
  const row = lines(file)
    .map((line) => line.split(':'))
    .find(([name]) => name === user)
  if (row?.[2] !== undefined && row[3] !== undefined) return `${row[2]}:${row[3]}`
  return user === 'nobody' ? NOBODY : null
}

function lines(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').split('\n')
  } catch {
    return []
  }
}
