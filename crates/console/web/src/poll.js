// Asking again and again, as long as somebody looks at the page.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ask } from './api.js';

/** What `load` has resolved with last, asked for anew `every` milliseconds. A hidden page asks nothing, so that its session ends. */
export function usePoll(load, every, inputs = []) {
  const [state, set] = useState({ data: undefined, error: undefined });
  const turn = useRef(0);
  const refresh = useCallback(async () => {
    const mine = ++turn.current;
    try {
      const data = await load();
      if (mine === turn.current) set({ data, error: undefined });
    } catch (error) {
      if (mine === turn.current) set((before) => ({ ...before, error }));
    }
  }, inputs);
  useEffect(() => {
    set({ data: undefined, error: undefined });
    let timer;
    let isOver = false;
    const look = async () => {
      if (!document.hidden) await refresh();
      if (!isOver && every) timer = setTimeout(look, every);
    };
    look();
    const seen = () => document.hidden || refresh();
    document.addEventListener('visibilitychange', seen);
    return () => {
      isOver = true;
      turn.current += 1;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
    };
  }, [refresh, every]);
  return { ...state, refresh };
}

export const useAsk = (path, every = 0) => usePoll(() => ask(path), every, [path]);
