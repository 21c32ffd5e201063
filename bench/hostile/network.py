"""Programs that want to reach someone; f(3) == 4 if they do."""

REFUSED = {"error", "fail"}
_RAW = "import ctypes, os, socket, struct\nlibc = ctypes.CDLL(None, use_errno=True)\n"

PROGRAMS = {
    "connect": "import socket\ndef f(x):\n  s = socket.create_connection(('127.0.0.1', @TCP@), 1)\n  s.send(b'!')\n  return 4",
    "connect by IPv6": "import socket\ndef f(x):\n  socket.create_connection(('::1', @TCP@), 1)\n  return 4",
    "connect_ex": "import socket\ndef f(x): return 4 if socket.socket().connect_ex(('127.0.0.1', @TCP@)) == 0 else 0",
    "datagram": (
        "import socket\ndef f(x): return 4 * (socket.socket(type=socket.SOCK_DGRAM).sendto(b'!', ('127.0.0.1', @UDP@)) > 0)"
    ),
    "datagram by sendmsg": (
        "import socket\ndef f(x):\n  s = socket.socket(type=socket.SOCK_DGRAM)\n"
        "  return 4 * (s.sendmsg([b'!'], [], 0, ('127.0.0.1', @UDP@)) > 0)"
    ),
    "datagram by sendmmsg": (
        _RAW + "def f(x):\n  s = socket.socket(type=socket.SOCK_DGRAM)\n"
        "  return 4 if libc.syscall(307, s.fileno(), bytes(64), 1, 0) > 0 else 0"
    ),
    "fast open": (
        "import socket\ndef f(x): return 4 * (socket.socket().sendto(b'!', 0x20000000, ('127.0.0.1', @TCP@)) > 0)"
    ),
    "listen": "import socket\ndef f(x):\n  socket.create_server(('127.0.0.1', 0))\n  return 4",
    "listen without bind": "import socket\ndef f(x):\n  socket.socket().listen()\n  return 4",
    "raw packets": "import socket\ndef f(x):\n  socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n  return 4",
    "raw IP": "import socket\ndef f(x):\n  socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)\n  return 4",
    "netlink": "import socket\ndef f(x):\n  socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)\n  return 4",
    "vsock": "import socket\ndef f(x):\n  socket.socket(socket.AF_VSOCK)\n  return 4",
    "kernel crypto": "import socket\ndef f(x):\n  socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)\n  return 4",
    "bluetooth": "import socket\ndef f(x):\n  socket.socket(31, socket.SOCK_RAW)\n  return 4",
    "abstract socket": "import socket\ndef f(x):\n  socket.socket(socket.AF_UNIX).connect('\\0@ABSTRACT@')\n  return 4",
    "abstract datagram": (
        "import socket\ndef f(x):\n  s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "  return 4 * (s.sendto(b'!', '\\0@ABSTRACT@-datagram') > 0)"
    ),
    "abstract datagram from a pair": (
        "import socket\ndef f(x):\n  s, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "  return 4 * (s.sendto(b'!', '\\0@ABSTRACT@-datagram') > 0)"
    ),
    "pair by sendmsg": (
        "import socket\ndef f(x):\n  s, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "  return 4 * (s.sendmsg([b'!'], [], 0, '\\0@ABSTRACT@-datagram') > 0)"
    ),
    "socket in a folder": "import socket\ndef f(x):\n  socket.socket(socket.AF_UNIX).connect('@FOLDER@/socket')\n  return 4",
    "docker's socket": "import socket\ndef f(x):\n  socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')\n  return 4",
    "own socket connected again": "import socket\ndef f(x):\n  socket.socket(fileno=3).connect('\\0@ABSTRACT@')\n  return 4",
    "descriptors handed over": (
        "import array, socket\ndef f(x):\n  s = socket.socket(fileno=3)\n"
        "  s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))])\n  return 4"
    ),
    "io_uring": _RAW + "def f(x): return 4 if libc.syscall(425, 4, bytes(120)) >= 0 else 0",
    "connect by system call": (
        _RAW + "def f(x):\n  a = struct.pack('=H', 2) + struct.pack('>H', @TCP@) + bytes([127, 0, 0, 1]) + bytes(8)\n"
        "  return 4 if libc.connect(socket.socket().fileno(), a, 16) == 0 else 0"
    ),
    "name look-up": "import socket\ndef f(x):\n  socket.gethostbyname('example.com')\n  return 4",
    "metadata server": "import urllib.request\ndef f(x):\n  urllib.request.urlopen('http://169.254.169.254/', timeout=1)\n  return 4",
    "32-bit socket call": (
        "import ctypes, mmap\ndef f(x):\n  m = mmap.mmap(-1, 4096, prot=7)\n"
        "  m.write(b'\\xb8\\x66\\x00\\x00\\x00\\xcd\\x80\\xc3')\n"
        "  ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()"
    ),
    "x32 socket call": _RAW + "def f(x): return 4 if libc.syscall(0x40000000 + 41, 2, 1, 0) >= 0 else 0",
}  # fmt: skip
