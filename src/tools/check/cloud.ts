/** Advice for commands that use only local files and are given a place in a cloud. */

import { schemeOf, type Scheme } from '../../internal.js'

/** The program of each cloud that copies a directory. */
const COPIES: Readonly<Record<Scheme, string>> = {
  s3: 'aws s3 sync',
  gs: 'gcloud storage rsync --recursive',
  as: 'azcopy sync',
}

/** Error text for a place in a cloud that a command cannot read, with what to do; null for a local path. */
export function unreadableCloud(path: string, command: 'doctor' | 'init' | 'optimize'): string | null {
  const scheme = schemeOf(path)
  return scheme === null
    ? null
    : `${path} is in a cloud, and 'nereid ${command}' reads only local files: copy it to a directory, for example ` +
        `with '${COPIES[scheme]}', and name the directory`
}

/** The same for a place that a command cannot write to. */
export function unwritableCloud(path: string, command: 'init' | 'optimize'): string | null {
  const scheme = schemeOf(path)
  return scheme === null
    ? null
    : `${path} is in a cloud, and 'nereid ${command}' writes only local files: name a directory, and then copy it ` +
        `there, for example with '${COPIES[scheme]}'`
}
