/** Moto's S3, an emulator from PyPI, in a Python environment of its own. */
import { spawn } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { join } from 'node:path'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { ROOT } from '../../scripts/setup.mjs'

const PACKAGES = ['moto[server]==5.2.5', 'boto3==1.44.8', 'Flask==3.1.3', 'Werkzeug==3.1.9']
const READY_MS_MAX = 60_000

/** @throws {Error} when pip cannot fetch it */
export const motoEnvironment = () =>
  peerEnvironment(ROOT, 'moto', PACKAGES, (text) => process.stdout.write(`${text}\n`), { compile: false })

/** An authorization header. moto reads only its service, unless keys are required. */
const signed = (service) =>
  `AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/${service}/aws4_request, SignedHeaders=host, Signature=x`

/** A server that listens on loopback, and is empty. Who asks is not looked at before `requireKeys`. */
export async function startMoto() {
  const { bin } = await motoEnvironment()
  const [port = 0] = await freePorts(1)
  const env = { ...process.env, INITIAL_NO_AUTH_ACTION_COUNT: String(Number.MAX_SAFE_INTEGER) }
  const child = spawn(join(bin, 'moto_server'), ['-H', '127.0.0.1', '-p', String(port)], { stdio: 'ignore', env })
  const ended = new Promise((resolve) => child.once('exit', resolve))
  const url = `http://127.0.0.1:${port}`
  const until = Date.now() + READY_MS_MAX
  while (
    !(await fetch(`${url}/moto-api/data.json`).then(
      ({ ok }) => ok,
      () => false,
    ))
  ) {
    if (child.exitCode !== null || Date.now() > until) throw new Error(`moto does not answer at ${url}`)
    await sleep(50)
  }
  return {
    port,
    url,
    /**
     * Makes a bucket, or writes an object: `models/a/b.txt`.
     *
     * @param {string} path
     * @param {string | Uint8Array} body
     * @param {Record<string, string>} headers
     */
    async put(path, body = '', headers = {}) {
      // An object that is there is written anew only for somebody.
      const answer = await fetch(`${url}/${path}`, {
        method: 'PUT',
        body,
        headers: { authorization: signed('s3'), ...headers },
      })
      if (!answer.ok) throw new Error(`moto answered ${answer.status} to PUT ${path}`)
    },
    /** From here on it takes one key only, which is returned. */
    async requireKeys() {
      const iam = async (fields) => {
        const answer = await fetch(url, {
          method: 'POST',
          headers: { authorization: signed('iam') },
          body: new URLSearchParams({ Version: '2010-05-08', UserName: 'reader', ...fields }),
        })
        return answer.text()
      }
      await iam({ Action: 'CreateUser' })
      const policy = {
        Version: '2012-10-17',
        Statement: [{ Effect: 'Allow', Action: ['s3:ListBucket', 's3:GetObject'], Resource: '*' }],
      }
      await iam({ Action: 'PutUserPolicy', PolicyName: 'read', PolicyDocument: JSON.stringify(policy) })
      const made = await iam({ Action: 'CreateAccessKey' })
      await fetch(`${url}/moto-api/reset-auth`, { method: 'POST', body: '0' })
      const member = (name) => new RegExp(`<${name}>([^<]+)<`).exec(made)?.[1] ?? ''
      return { id: member('AccessKeyId'), secret: member('SecretAccessKey') }
    },
    async takeAllKeys() {
      await fetch(`${url}/moto-api/reset-auth`, { method: 'POST', body: String(Number.MAX_SAFE_INTEGER) })
    },
    async stop() {
      child.kill('SIGKILL')
      await ended
    },
  }
}
