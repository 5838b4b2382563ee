// The differential test once more, as on a Node.js where sockets cannot be had to read into a buffer of ours.
import { vi } from 'vitest';

vi.mock(import('../../verifier/read-buffer.ts'), async (original) => ({
  ...(await original()),
  readIntoBuffer: () => false,
}));

await import('./differential.test.ts');
