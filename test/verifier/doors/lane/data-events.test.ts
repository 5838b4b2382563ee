// The differential test once more, as on a Node.js where sockets cannot be had to read into a buffer of ours.
import { afterAll, expect, vi } from 'vitest';
import { readIntoBuffer } from '../../../../shared/process/read-buffer.ts';

vi.mock(import('../../../../shared/process/read-buffer.ts'), async (original) => ({
  ...(await original()),
  readIntoBuffer: vi.fn(() => false),
}));
afterAll(() => expect(readIntoBuffer).toHaveBeenCalled());

await import('./differential.test.ts');
