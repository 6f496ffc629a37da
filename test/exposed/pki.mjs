/**
 * Certificates of a run, made by openssl: a root, a server and a client that it signed, and a client that another root
 * signed.
 */
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

const CURVE = ['ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1']
const openssl = (...args) => execFileSync('openssl', args, { stdio: ['ignore', 'pipe', 'pipe'], timeout: 60_000 })

/** @param addresses what the server is reached at, beside localhost */
export function makePki(directory, addresses) {
  const at = (name) => ({ cert: join(directory, `${name}.crt`), key: join(directory, `${name}.key`) })
  const root = (name) => {
    const files = at(name)
    openssl(
      'req',
      '-x509',
      '-newkey',
      ...CURVE,
      '-nodes',
      '-days',
      '2',
      '-subj',
      `/CN=${name}`,
      '-keyout',
      files.key,
      '-out',
      files.cert,
    )
    return files
  }
  let serial = 1
  const issue = (by, name, use) => {
    const files = at(name)
    const [request, extensions] = [join(directory, `${name}.csr`), join(directory, `${name}.ext`)]
    const names = ['DNS:localhost', ...addresses.map((address) => `IP:${address}`)].join(',')
    writeFileSync(extensions, `subjectAltName=${names}\nextendedKeyUsage=${use}\nbasicConstraints=CA:FALSE\n`)
    openssl('req', '-newkey', ...CURVE, '-nodes', '-subj', `/CN=${name}`, '-keyout', files.key, '-out', request)
    serial += 1
    openssl(
      'x509',
      '-req',
      '-in',
      request,
      '-CA',
      by.cert,
      '-CAkey',
      by.key,
      '-set_serial',
      String(serial),
      '-days',
      '2',
      '-extfile',
      extensions,
      '-out',
      files.cert,
    )
    return files
  }
  const [ours, other] = [root('ca'), root('stranger')]
  return {
    root: ours,
    server: issue(ours, 'tls', 'serverAuth'),
    client: issue(ours, 'client', 'clientAuth'),
    foreign: issue(other, 'foreign', 'clientAuth'),
  }
}
