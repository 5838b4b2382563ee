// Runs in each test file: a worker takes one file after the other, so each must leave the process as it found it.
import { afterAll, beforeAll, beforeEach, expect } from 'vitest';
import { changedSince, children, type Found, find } from './found.ts';
import { forgetWords, lastWords } from './last-words.ts';
import { eventually } from './waiting.ts';

// Whoever logs writes the rest at the end of the process: over many files such listeners add up, and nobody is to be warned.
process.setMaxListeners(0);

let found: Found;
let childrenFound: number;
beforeAll(() => {
  forgetWords();
  found = find();
  childrenFound = children();
});
beforeEach(({ onTestFailed }) => onTestFailed(() => console.error(lastWords())));
// Hooks at the end run from the last to the first: this one after the file's own.
afterAll(async () => {
  expect(changedSince(found), 'left changed').toEqual([]);
  await eventually(() => children() <= childrenFound, 'processes were left running');
});
