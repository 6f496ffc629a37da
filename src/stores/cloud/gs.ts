/**
 * Repositories in Google Cloud Storage: two requests of its JSON interface, with the tokens of Google's library for them. Google's library for storage reads through
 * node-fetch, whose connections stay open when a read ends early.
 */
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { text } from 'node:stream/consumers'
import { GoogleAuth, PassThroughClient, type AuthClient, type JWTInput } from 'google-auth-library'
import { StoreError, type OpenStore } from '../client.js'
import { CREDENTIAL_FILE, credentialFor, readJson } from './credential_file.js'
import { codeOf, silence, type Agents, type Answer } from './requests.js'
import { Foreign, Store, split, type Cloud, type Location, type Meaning } from './store.js'

const ENDPOINT = 'https://storage.googleapis.com'
const SCOPE = 'https://www.googleapis.com/auth/devstorage.read_only'
const APPLICATION = 'GOOGLE_APPLICATION_CREDENTIALS'

/** @throws {StoreError} */
function locate(url: string, environment: NodeJS.ProcessEnv): Location {
  const [bucket, ...path] = split(/^gs:\/\/(.*)$/s.exec(url)?.[1] ?? '')
  if (bucket === undefined) throw new StoreError('invalid', `${url} is not a place in Google Cloud Storage: write gs://BUCKET/PATH`)
  return { url: `gs://${[bucket, ...path].join('/')}`, endpoint: endpointOf(environment), bucket, path: path.join('/') }
}

/** Of an emulator, as Google's libraries for Go and Python read it; else Google's own. */
function endpointOf({ STORAGE_EMULATOR_HOST: host }: NodeJS.ProcessEnv): string {
  if (!host) return ENDPOINT
  return (/^https?:\/\//.test(host) ? host : `http://${host}`).replace(/\/+$/, '').replace(/\/storage\/v1$/, '')
}

/** Who asks, as the credential file or the environment say. Files are read again at each call. */
async function access(url: string, environment: NodeJS.ProcessEnv): Promise<AuthClient> {
  const entry = await credentialFor('gs', url, environment)
  if (entry !== null && typeof entry !== 'string') throw new StoreError('invalid', `${CREDENTIAL_FILE}: what stands below "gs" must be the path of a file`)
  const path = entry ?? environment[APPLICATION]
  if (path) {
    const name = entry === null ? APPLICATION : CREDENTIAL_FILE
    const credentials = (await readJson(path, name)) as JWTInput
    return new GoogleAuth({ credentials, scopes: SCOPE }).getClient().catch((error: unknown) => {
      throw new StoreError('invalid', `${path}, which ${name} names, is not a credential of Google's (${codeOf(error)})`)
    })
  }
  if (environment.STORAGE_EMULATOR_HOST) return new PassThroughClient()
  // Where there is no service of metadata, nobody's: enough for a bucket that everybody may read.
  return new GoogleAuth({ scopes: SCOPE }).getClient().catch(() => new PassThroughClient())
}

/** No token, or an answer with a status that is not one of success. */
class Refused extends Error {
  readonly meaning: Meaning

  constructor(meaning: Meaning) {
    super()
    this.meaning = meaning
  }
}

interface Page {
  nextPageToken?: string
  items?: { name: string; size: string; generation: string; md5Hash?: string }[]
}

/** @throws {Foreign} */
function pageOf(text: string): Page {
  try {
    const found: unknown = JSON.parse(text)
    if (typeof found === 'object' && found !== null) return found
  } catch {
    // A page of a proxy.
  }
  throw new Foreign()
}

/** @throws {Refused} */
async function get(client: AuthClient, agents: Agents, url: URL, headers: Record<string, string>, signal: AbortSignal): Promise<IncomingMessage> {
  const token = await client.getRequestHeaders(url).catch((error: unknown) => {
    throw new Refused(withoutToken(error))
  })
  const [send, agent] = url.protocol === 'http:' ? [httpRequest, agents.http] : [httpsRequest, agents.https]
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    send(url, { agent, signal, headers: { ...Object.fromEntries(token), ...headers } })
      .once('response', resolve)
      .on('error', reject)
      .end()
  })
  const { statusCode: status = 0, statusMessage = '' } = answer
  if (status === 200 || status === 206) return answer
  // A reason is a word: notFound, authError.
  const reason = /"reason": ?"(\w+)"/.exec(await text(answer))?.[1]
  throw new Refused({ answer: { status, code: reason ?? statusMessage } })
}

/** What the service answered that gives tokens. Its words are not for messages: they may tell of the credentials. */
function withoutToken(error: unknown): Meaning {
  const { response, cause } = (error ?? {}) as { response?: { status?: number; data?: { error?: unknown } }; cause?: unknown }
  const name = response?.data?.error
  const found = codeOf(error)
  const answer: Answer = { status: response?.status, code: typeof name === 'string' && /^\w+$/.test(name) ? name : found === 'no code' || found === 'GaxiosError' ? codeOf(cause) : found }
  const isNetwork = answer.status === undefined ? /^E[A-Z_]+$/.test(answer.code) && !answer.code.startsWith('ERR_') : answer.status >= 500
  return { answer, endpoint: "Google's service that gives tokens", failure: isNetwork ? 'unavailable' : 'denied' }
}

function cloud(url: string, environment: NodeJS.ProcessEnv): Cloud<{ auth: AuthClient; agents: Agents }> {
  const location = locate(url, environment)
  const objects = `${location.endpoint}/storage/v1/b/${encodeURIComponent(location.bucket)}/o`
  const file = environment[CREDENTIAL_FILE]
  let anonymous = false
  return {
    location,
    noun: 'bucket',
    credentials() {
      const advice = file
        ? `write the path of a service account's key for ${location.url} into ${file}`
        : `set ${APPLICATION} to the file of a service account's key that may list and read this bucket (role Storage Object Viewer), or give that role to the account of this machine`
      return anonymous ? `no credentials were found: ${advice}` : advice
    },
    async open(agents) {
      const auth = await access(url, environment)
      anonymous = auth instanceof PassThroughClient
      return { auth, agents }
    },
    async page({ auth, agents }, prefix, token, signal) {
      const query = new URLSearchParams({ prefix, maxResults: '1000', fields: 'nextPageToken,items(name,size,generation,md5Hash)' })
      if (token !== undefined) query.set('pageToken', token)
      const { items = [], nextPageToken } = pageOf(await text(await get(auth, agents, new URL(`${objects}?${query}`), {}, signal)))
      const md5 = (hash: string | undefined) => (hash === undefined ? null : Buffer.from(hash, 'base64').toString('hex'))
      return { objects: items.map((item) => ({ path: item.name, size: Number(item.size), version: item.generation, md5: md5(item.md5Hash) })), next: nextPageToken || undefined }
    },
    async range({ auth, agents }, name, version, from, to, signal) {
      const headers = {
        range: `bytes=${from}-${to - 1}`,
        // Without it, an object that was stored compressed would be sent decompressed, and without a range.
        'accept-encoding': 'gzip',
      }
      const stream = await get(auth, agents, new URL(`${objects}/${encodeURIComponent(name)}?alt=media&ifGenerationMatch=${version}`), headers, signal)
      const { 'x-goog-generation': generation, 'content-length': length } = stream.headers
      return { stream, version: typeof generation === 'string' ? generation : undefined, length: length === undefined ? undefined : Number(length) }
    },
    meaning: (error) => (error instanceof Refused ? error.meaning : null),
  }
}

export const open: OpenStore = async (url, environment) => {
  silence()
  return Store.open(cloud(url, environment))
}
