/** Repositories in Azure Blob Storage. */
import type { Readable } from 'node:stream'
import { DefaultAzureCredential, ManagedIdentityCredential, type TokenCredential } from '@azure/identity'
import { AnonymousCredential, BlobServiceClient, StorageSharedKeyCredential, type ContainerClient } from '@azure/storage-blob'
import { StoreError, type OpenStore } from '../client.js'
import { CREDENTIAL_FILE, credentialFor, strings } from './credential_file.js'
import { codeOf, silence } from './requests.js'
import { Foreign, Store, split, type Cloud, type Location, type Meaning } from './store.js'

const MEMBERS = ['account_str', 'account_key', 'auth_type', 'client_id'] as const
const AUTH_TYPES = ['key', 'managed_identity', 'default']

interface Account {
  account_str?: string | undefined
  account_key?: string | undefined
  auth_type?: string | undefined
  client_id?: string | undefined
}

interface Place extends Location {
  account: string
  /** Address of the account: `https://account.blob.core.windows.net`, or a host of an emulator with the account as its path. */
  service: (account: string) => string
}

/**
 * `as://account/container/path`, where the account may be written as a host; or, for emulators and other clouds, `as://https://account.blob.HOST/container/path` and
 * `as://http://host:port/account/container/path`.
 *
 * @throws {StoreError}
 */
function locate(url: string): Place {
  const [, scheme, rest = ''] = /^as:\/\/(https?:\/\/)?(.*)$/s.exec(url) ?? []
  const parts = split(rest)
  const host = parts.shift() ?? ''
  const [, named, domain] = /^([^.@]+)(\.blob\..+)$/.exec(host) ?? []
  const isPath = scheme !== undefined && named === undefined
  const account = (isPath ? parts.shift() : (named ?? host)) ?? ''
  const [bucket, ...path] = parts
  const origin = scheme ?? 'https://'
  const service = (name: string) => (isPath ? `${origin}${host}/${name}` : `${origin}${name}${domain ?? '.blob.core.windows.net'}`)
  if (bucket === undefined || account === '' || host.includes('@') || !URL.canParse(service(account))) {
    throw new StoreError('invalid', `${host.includes('@') ? 'this' : url} is not a place in Azure Blob Storage: write as://ACCOUNT/CONTAINER/PATH, or as://http://HOST:PORT/ACCOUNT/CONTAINER/PATH`)
  }
  return { url: `as://${scheme ?? ''}${[host, ...(isPath ? [account] : []), bucket, ...path].join('/')}`, endpoint: service(account), bucket, path: path.join('/'), account, service }
}

/** Who asks, as the credential file or the environment say. */
async function access(url: string, environment: NodeJS.ProcessEnv): Promise<Account> {
  const entry = await credentialFor('as', url, environment)
  if (entry !== null) return strings(entry, MEMBERS, 'as')
  const { AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY, AZURE_STORAGE_AUTH_TYPE, AZURE_STORAGE_CLIENT_ID } = environment
  return { account_str: AZURE_STORAGE_ACCOUNT, account_key: AZURE_STORAGE_KEY, auth_type: AZURE_STORAGE_AUTH_TYPE, client_id: AZURE_STORAGE_CLIENT_ID }
}

/** @throws {StoreError} */
function credential(account: string, { account_key, auth_type, client_id }: Account): StorageSharedKeyCredential | AnonymousCredential | TokenCredential {
  switch (auth_type || 'key') {
    case 'key':
      // Without a key, nobody's: enough for a container that everybody may read.
      return account_key ? new StorageSharedKeyCredential(account, account_key) : new AnonymousCredential()
    case 'managed_identity':
      return client_id ? new ManagedIdentityCredential({ clientId: client_id }) : new ManagedIdentityCredential()
    case 'default':
      return new DefaultAzureCredential()
    default:
      throw new StoreError('invalid', `AZURE_STORAGE_AUTH_TYPE, or auth_type of ${CREDENTIAL_FILE}, is '${auth_type}': it must be one of ${AUTH_TYPES.join(', ')}`)
  }
}

function cloud(url: string, environment: NodeJS.ProcessEnv): Cloud<ContainerClient> {
  const { account: own, service, ...location } = locate(url)
  const file = environment[CREDENTIAL_FILE]
  let anonymous = false
  return {
    location,
    noun: 'container',
    credentials() {
      const advice = file
        ? `write account_str and account_key for ${location.url} into ${file}`
        : 'set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, or AZURE_STORAGE_AUTH_TYPE to managed_identity or default, to what may list and read this container (role Storage Blob Data Reader)'
      return anonymous ? `no key was found: ${advice}` : advice
    },
    async open(agents) {
      const found = await access(url, environment)
      const account = found.account_str || own
      const who = credential(account, found)
      anonymous = who instanceof AnonymousCredential
      // `agent` goes through to the library's core, whose option it is; where there is a proxy, that comes first.
      const options = { retryOptions: { maxTries: 1 }, agent: location.endpoint.startsWith('http:') ? agents.http : agents.https }
      const client = new BlobServiceClient(service(account), who as AnonymousCredential, options)
      return client.getContainerClient(location.bucket)
    },
    async page(client, prefix, token, abortSignal) {
      const pages = client.listBlobsFlat({ prefix, includeMetadata: true, abortSignal }).byPage(token === undefined ? {} : { continuationToken: token })
      const page = await pages.next()
      if (page.done) return { objects: [], next: undefined }
      const { segment, continuationToken } = page.value
      // Against its type: of an answer that is no list nothing is there.
      if ((segment as typeof segment | undefined)?.blobItems === undefined) throw new Foreign()
      const objects = segment.blobItems
        .map(({ name, metadata, properties: { contentLength = 0, etag, contentMD5, blobType } }) => ({
          // Directories of a hierarchical namespace are in the list, without the slash.
          path: metadata?.hdi_isfolder === 'true' ? `${name}/` : name,
          size: contentLength,
          version: bare(etag),
          // Of a blob that is written in pages, nobody keeps it true.
          md5: contentMD5 === undefined || blobType !== 'BlockBlob' ? null : Buffer.from(contentMD5).toString('hex'),
        }))
      return { objects, next: continuationToken || undefined }
    },
    async range(client, name, version, from, to, abortSignal) {
      const answer = await client.getBlobClient(name).download(from, to - from, { abortSignal, conditions: { ifMatch: `"${version}"` }, maxRetryRequests: 0 })
      return { stream: answer.readableStreamBody as Readable, version: answer.etag === undefined ? undefined : bare(answer.etag), length: answer.contentLength }
    },
    meaning,
  }
}

/** Without the quotes that an ETag has in headers. */
const bare = (tag: string) => tag.replace(/^"|"$/g, '')

function meaning(error: unknown): Meaning | null {
  const { name, statusCode } = (error ?? {}) as { name?: string; statusCode?: number }
  const code = codeOf(error)
  // Of @azure/identity: no credential, or one that is not taken. Its message tells all that was tried, on many lines.
  if (name !== undefined && /^(?:CredentialUnavailableError|AuthenticationError|AggregateAuthenticationError|AuthenticationRequiredError)$/.test(name)) {
    return { answer: { status: statusCode, code: name }, failure: 'denied', endpoint: "Azure's service that gives tokens" }
  }
  if (statusCode === undefined) return null
  const answer = { status: statusCode, code }
  return code === 'PublicAccessNotPermitted' ? { answer, failure: 'denied' } : { answer }
}

export const open: OpenStore = async (url, environment) => {
  silence()
  return Store.open(cloud(url, environment))
}
