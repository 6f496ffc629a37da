/** Attacks that other suites make, for docs/limits.md: those of storage, which has to lie, are made on storage in memory. `test` is the name of one in `file`. */
const REMOTE = 'test/repository/remote.test.ts'

export const ELSEWHERE = [
  {
    attack: 'storage whose list of objects does not end, and a model of 100,001 objects',
    limit: '`OBJECTS_MAX` of a repository and `MODEL_OBJECTS_MAX` of a model (`src/stores/mirror.ts`); a page without objects counts as one',
    file: REMOTE,
    test: 'a list that does not end is given up, and a model of too many objects is refused',
  },
  {
    attack: 'storage that sends more than was asked for',
    limit: 'a read ends with an error at the first byte too many (`src/stores/cache.ts`)',
    file: REMOTE,
    test: 'storage that sends more than was asked for is not believed',
  },
  {
    attack: 'objects of -5, of 10^18, of NaN and of 1.5 bytes',
    limit: 'sizes are whole numbers, and have to fit on the disk before anything is read; other models load',
    file: REMOTE,
    test: 'an object of %s bytes is refused, and others load',
  },
  {
    attack: 'names of objects that lead out of the model, or that are a file and a directory at once',
    limit: 'no segment is empty, `.` or `..`, or longer than `NAME_BYTES_MAX`; `DEPTH_MAX` levels (`src/stores/mirror.ts`)',
    file: REMOTE,
    test: 'an object with objects below it is refused, and names that are no directories are left out',
  },
  {
    attack: 'content that was damaged on its way',
    limit: 'the MD5 that storage tells is compared before the object has its name in the cache',
    file: REMOTE,
    test: 'what was damaged on its way is not kept',
  },
  {
    attack: 'a connection to storage that brings 0, 1 or 500 bytes a second',
    limit: 'cut when 16 KiB took more than 30 s (`src/stores/cloud/requests.ts`); after six in a row the load fails',
    file: 'test/stores/requests.test.ts',
    test: 'a connection that brings %d bytes a second is cut after 30 seconds',
  },
  {
    attack: 'models that together, or alone, are larger than the cache of downloads',
    limit: '`--repository-cache-bytes`, and a fiftieth of the disk that stays free: what is in use stays, what has no room is refused before it is read',
    file: REMOTE,
    test: 'a model that is too large for the cache takes no other with it; what fits side by side waits for its turn',
  },
]
