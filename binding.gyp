{
  "variables": {
    # 1: a build under AddressSanitizer and UndefinedBehaviorSanitizer. Load it with LD_PRELOAD=libasan.so.
    "sanitize%": 0
  },
  "targets": [
    {
      "target_name": "nft_proxier",
      "sources": [
        "native/addon.cc",
        "native/address_monitor.cc",
        "native/addresses.cc",
        "native/attr.cc",
        "native/batch.cc",
        "native/connection.cc",
        "native/conntrack_codec.cc",
        "native/conntrack_dump.cc",
        "native/conntrack_filter.cc",
        "native/conntrack_monitor.cc",
        "native/conntrack_pack.cc",
        "native/conntrack_reader.cc",
        "native/conntrack_requests.cc",
        "native/conntrack_screen.cc",
        "native/conntrack_socket.cc",
        "native/conntrack_table.cc",
        "native/dump.cc",
        "native/element_codec.cc",
        "native/expr_codec.cc",
        "native/expr_table.cc",
        "native/failure.cc",
        "native/js_batch.cc",
        "native/js_conntrack.cc",
        "native/js_conntrack_dump.cc",
        "native/js_conntrack_values.cc",
        "native/js_exprs.cc",
        "native/js_messages.cc",
        "native/js_monitor.cc",
        "native/js_ops.cc",
        "native/js_values.cc",
        "native/js_writer.cc",
        "native/legacy_tables.cc",
        "native/listener.cc",
        "native/message_decoder.cc",
        "native/monitor.cc",
        "native/op_codec.cc",
        "native/socket.cc"
      ],
      "defines": ["NAPI_CPP_EXCEPTIONS", "NAPI_VERSION=9", "NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS", "_GNU_SOURCE"],
      "cflags!": ["-fno-exceptions"],
      "cflags_cc!": ["-fno-exceptions", "-fno-rtti", "-std=gnu++17", "-std=gnu++20"],
      "cflags_cc": [
        "-std=c++17",
        "-fvisibility=hidden",
        # Such symbols would keep the library in memory behind the last thread that has loaded it. gcc alone makes them,
        # and alone knows the option.
        "<!@(${CXX:-g++} -fno-gnu-unique -fsyntax-only -x c++ /dev/null 2>/dev/null && echo -fno-gnu-unique || true)",
        # The headers of others are not ours to warn about.
        "-isystem",
        "<!(node -p \"require('node:path').resolve(require('node-addon-api').include_dir)\")",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror"
      ],
      "libraries": ["-lnftnl", "-lmnl"],
      "conditions": [
        [
          "sanitize==1",
          {
            "cflags_cc": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g", "-O1"],
            "ldflags": ["-fsanitize=address,undefined"]
          }
        ]
      ]
    }
  ]
}
