"""An async crawler of a small local site: every page once."""
# expect: 40 pages, 120 links, deepest 4

import asyncio
import http.server
import re
import sys
import threading
import urllib.request

import bireme

PAGES = 40


class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        number = int(self.path.strip("/") or 0)
        links = "".join(f'<a href="/{(number * 2 + step) % PAGES}">' for step in (1, 2, 3))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(links.encode())

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
threading.Thread(target=server.serve_forever, daemon=True).start()
root = f"http://127.0.0.1:{server.server_port}"

bireme.init(*sys.argv[1:])


@bireme.remote
class Crawler:
    async def links(self, page):
        def read():
            with urllib.request.urlopen(f"{root}/{page}", timeout=30) as answer:
                return answer.read().decode()

        return [int(link) for link in re.findall(r'href="/(\d+)"', await asyncio.to_thread(read))]


async def crawl():
    crawler = Crawler.remote()
    depths, links, front = {0: 0}, 0, [0]
    while front:
        pages = await asyncio.gather(*(crawler.links.remote(page) for page in front))
        following = []
        for page, found in zip(front, pages, strict=True):
            links += len(found)
            for link in found:
                if link not in depths:
                    depths[link] = depths[page] + 1
                    following.append(link)
        front = following
    return depths, links


depths, links = asyncio.run(crawl())
server.shutdown()
server.server_close()
print(f"{len(depths)} pages, {links} links, deepest {max(depths.values())}")
