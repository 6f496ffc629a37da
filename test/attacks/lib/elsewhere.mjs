/**
 * Attacks in other suites, for docs/limits.md: storage attacks run against storage in memory. `test` is the name of a
 * test in `file`.
 */
const REMOTE = 'test/repository/remote.test.ts'

export const ELSEWHERE = [
  {
    attack: 'storage whose list of objects does not end, and a model of 100,001 objects',
    limit:
      'A repository has at most `OBJECTS_MAX` objects and a model has at most `MODEL_OBJECTS_MAX` ' +
      '(`src/stores/mirror.ts`). A page without objects counts as one object.',
    file: REMOTE,
    test: 'an endless list is cancelled, and a model with too many objects is rejected',
  },
  {
    attack: 'storage that sends more than was requested',
    limit: 'A read ends with an error at the first excess byte (`src/stores/cache.ts`).',
    file: REMOTE,
    test: 'a response that is longer than requested is rejected',
  },
  {
    attack: 'objects of -5, of 10^18, of NaN and of 1.5 bytes',
    limit: 'Sizes must be whole numbers and fit on the disk before a read starts. Other models load.',
    file: REMOTE,
    test: 'an object of %s bytes is rejected, and others load',
  },
  {
    attack: 'names of objects that lead out of the model, or that are a file and a directory at once',
    limit:
      'A segment must not be empty, `.`, `..` or longer than `NAME_BYTES_MAX`, and a name has at most ' +
      '`DEPTH_MAX` levels (`src/stores/mirror.ts`).',
    file: REMOTE,
    test: 'an object with objects below it is rejected',
  },
  {
    attack: 'content that was damaged in transit',
    limit: 'The MD5 from the storage is compared before the object gets its name in the cache.',
    file: REMOTE,
    test: 'damaged downloads are not kept',
  },
  {
    attack: 'a connection to storage that brings 0, 1 or 500 bytes a second',
    limit:
      'A connection closes if 16 KiB take more than 30 s (`src/stores/cloud/requests.ts`). After six in a ' +
      'row, the load fails.',
    file: 'test/stores/requests.test.ts',
    test: 'a connection that brings %d bytes a second is cut after 30 seconds',
  },
  {
    attack:
      'models that together, or alone, are larger than the cache of downloads, in several repositories and servers ' +
      'that share it',
    limit:
      '`--repository-cache-bytes` applies to all of them together, and a fiftieth of the disk stays free. A model ' +
      'reserves its room before it is read (`src/stores/room.ts`). Models in use stay, and a model without room is ' +
      'rejected.',
    file: 'test/stores/room.test.ts',
    test: 'two threads and two processes that share a cache stay within its limit',
  },
  {
    attack: 'downloads that are interrupted again and again',
    limit:
      'There is one part of an object. It counts for the limit, makes room for others, and is removed after ' +
      '`PART_AGE_MS_MAX` (`src/stores/room.ts`).',
    file: 'test/stores/continued.test.ts',
    test: 'a part is removed after a day, a small one of an ended process at once',
  },
  {
    attack: 'a model that is saved 200 times in a second under nereid dev',
    limit:
      'Changes are collected until `QUIET_MS` of silence, at most `COLLECT_MS_MAX` and `FILES_MAX`, and a model ' +
      'has one reload at a time. At most `DIRECTORIES_MAX` directories are watched (`src/tools/dev`).',
    file: 'test/javascript/dev.test.ts',
    test: 'a burst of 200 saves ends with the last one, few reloads',
  },
]
